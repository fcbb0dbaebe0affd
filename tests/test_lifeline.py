"""Life-lines over real sockets, the rule of the launcher, and the relay of what workers print."""

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hvd_ft.generations import Again, GenerationPolicy, NotYet, Over, agents_lost
from hvd_ft.launcher_watch import LauncherWatch
from hvd_ft.lifeline import Holder, LifeLines, hold
from hvd_ft.output_relay import OutputRelay
from hvd_ft.settings import Settings

TIMEOUT_SECONDS = 20.0


@pytest.fixture
def launcher() -> Iterator[LifeLines]:
    lines = LifeLines(one_host=True)
    yield lines
    lines.close()


def serve(lines: LifeLines, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not until():
        assert time.monotonic() < deadline
        select.select([lines], [], [], 0.05)
        lines.serve()


def connect(lines: LifeLines, rank: int, generation: int = 0) -> LauncherWatch:
    """Connects as a nursery does, which waits for each answer."""
    made: list[LauncherWatch] = []
    before = len(lines.holders)
    thread = threading.Thread(
        target=lambda: made.append(LauncherWatch(lines.address, rank, generation, 60))
    )
    thread.start()
    serve(lines, lambda: len(lines.holders) > before)
    thread.join()
    return made[0]


def test_the_launcher_hears_how_nurseries_are(launcher: LifeLines) -> None:
    first, second = connect(launcher, 0), connect(launcher, 1)
    serve(launcher, lambda: None not in launcher.holders)
    assert launcher.holders == [Holder(0, 0, False), Holder(1, 0, False)]
    first.say(orphaned=True)
    serve(launcher, lambda: Holder(0, 0, True) in launcher.holders)
    first.generation = 1
    first.say(orphaned=False)
    serve(launcher, lambda: Holder(0, 1, False) in launcher.holders)
    assert second.line is not None
    second.line.close()
    serve(launcher, lambda: len(launcher.holders) == 1)


def test_a_launcher_that_is_gone_is_dead(launcher: LifeLines) -> None:
    watch = connect(launcher, 0)
    launcher.close()
    assert watch.line is not None
    assert select.select([watch.line], [], [], TIMEOUT_SECONDS)[0]
    assert watch.is_dead()


def test_a_line_that_breaks_is_made_again(launcher: LifeLines) -> None:
    watch = connect(launcher, 3)
    assert watch.line is not None
    end = socket.socket(fileno=os.dup(watch.line.fileno()))
    end.shutdown(socket.SHUT_RDWR)
    end.close()
    dead: list[bool] = []
    thread = threading.Thread(target=lambda: dead.append(watch.is_dead()))
    thread.start()
    serve(launcher, lambda: bool(dead))
    thread.join()
    assert dead == [False]
    serve(launcher, lambda: launcher.holders == [Holder(3, 0, False)])


def test_who_does_not_know_the_key_is_nobody(launcher: LifeLines) -> None:
    host, port, _ = launcher.address.split(":")
    refused: list[OSError] = []

    def try_it() -> None:
        try:
            hold(f"{host}:{port}:{'0' * 64}")
        except OSError as error:
            refused.append(error)

    thread = threading.Thread(target=try_it)
    thread.start()
    serve(launcher, lambda: bool(refused))
    thread.join()
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"\xff" * 64)
        serve(launcher, lambda: select.select([stranger], [], [], 0)[0] != [])
    assert launcher.holders == []


POLICY = Settings(max_failures=2, failure_window_seconds=10)
WELL, ORPHANED = Holder(0, 0, False), Holder(1, 0, True)


def test_when_new_agents_are_started() -> None:
    policy = GenerationPolicy(POLICY)
    assert isinstance(policy.ended([], False, 0), Over)
    assert isinstance(policy.ended([WELL, ORPHANED], True, 0), Over)
    assert isinstance(policy.ended([WELL, None], False, 0), NotYet)
    assert isinstance(policy.ended([WELL, ORPHANED], False, 0), Again)
    assert isinstance(policy.ended([ORPHANED], False, 1), Again)
    verdict = policy.ended([ORPHANED], False, 9)
    assert isinstance(verdict, Over)
    assert verdict.message.startswith("agents or mpirun failed 3 times within 10 s")
    assert isinstance(policy.ended([ORPHANED], False, 30), Again)


def test_whose_agents_are_lost() -> None:
    assert agents_lost([None, WELL, ORPHANED], 0)
    assert not agents_lost([None, WELL, ORPHANED], 1)  # not yet taken over


@contextlib.contextmanager
def standard_streams() -> Iterator[list[int]]:
    """Pipes in the place of this process's standard output and error; gives the reading ends."""
    kept = [os.dup(target) for target in (1, 2)]
    pipes = [os.pipe() for _ in kept]
    for (_, end), target in zip(pipes, (1, 2), strict=True):
        os.dup2(end, target)
        os.close(end)
    try:
        yield [reader for reader, _ in pipes]
    finally:
        for saved, target in zip(kept, (1, 2), strict=True):
            os.dup2(saved, target)
            os.close(saved)


def test_what_is_printed_without_an_agent_is_not_lost() -> None:
    with standard_streams() as streams:
        relay = OutputRelay()
        os.write(relay.ends[0], b"one\n")
        os.write(relay.ends[1], b"error\n")
        relay.flush()
        assert [os.read(reader, 100) for reader in streams] == [b"one\n", b"error\n"]
        os.write(relay.ends[0], b"two\n")
        relay.detach()
        os.write(relay.ends[0], b"three\n")
        assert relay.waits_for() == ([], [])
        relay.flush()
        assert os.read(streams[0], 100) == b""  # nobody has the old pipe any more
        reader, end = os.pipe()
        relay.attach([end, os.open(os.devnull, os.O_WRONLY)])
        relay.flush()
        assert os.read(reader, 100) == b"two\nthree\n"


def test_lines_stay_whole() -> None:
    with standard_streams() as streams:
        relay = OutputRelay()
        text = b"".join(b"%d " % number + b"x" * 700 + b"\n" for number in range(50))
        os.write(relay.ends[0], text)
        seen = []
        while relay.move():
            seen.append(os.read(streams[0], 1 << 20))
        assert b"".join(seen) == text
        assert all(piece.endswith(b"\n") for piece in seen)
        assert len(seen) > 5
