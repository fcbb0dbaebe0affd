"""Life-lines over real sockets, the rule of the launcher, and the relay of what workers print."""

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from hvd_ft.job.lifeline import Answer, LifeLines, ShimStatus
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.generations import Again, GenerationPolicy, NotYet, Over, agents_lost
from hvd_ft.shim.launcher_line import LauncherLine
from hvd_ft.shim.output_relay import OutputRelay
from hvd_ft.system.channel import Channel, Message

TIMEOUT_SECONDS = 20.0


HOST = "n0/1"
LEASE = 20.0


@pytest.fixture
def launcher() -> Iterator[LifeLines]:
    lines = LifeLines(one_host=True, lease_seconds=LEASE)
    yield lines
    lines.close()


def line(lines: LifeLines, rank: int, host: str = HOST, *, known: bool = False) -> LauncherLine:
    return LauncherLine(lines.address, rank, host, 0, LEASE, known=known)


Said = list[tuple[LauncherLine, Message]]


def serve(lines: LifeLines, ends: Sequence[LauncherLine], until: Callable[[Said], object]) -> Said:
    """Has all of them go on; returns what the launcher has said to whom."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    said: Said = []
    while not until(said):
        assert time.monotonic() < deadline
        waiting = [end.waits_for() for end in ends]
        readers = [fd for reading, _ in waiting for fd in reading] + [lines.fileno()]
        writers = [fd for _, writing in waiting for fd in writing]
        reading, writing, _ = select.select(readers, writers, [], 0.05)
        lines.serve()
        for end in ends:
            said += [(end, order) for order in end.move({*reading, *writing})]
    return said


def connect(lines: LifeLines, *ranks: int) -> list[LauncherLine]:
    ends = [line(lines, rank) for rank in ranks]
    serve(lines, ends, lambda _: sum(h is not None for h in lines.shims) == len(ends))
    return ends


def test_the_launcher_hears_how_shims_are(launcher: LifeLines) -> None:
    first, second = ends = connect(launcher, 0, 1)
    assert launcher.shims == [ShimStatus(0, HOST, 0, False), ShimStatus(1, HOST, 0, False)]
    first.tell(orphaned=True)
    serve(launcher, ends, lambda _: ShimStatus(0, HOST, 0, True) in launcher.shims)
    first.tell(orphaned=False, generation=1)
    serve(launcher, ends, lambda _: ShimStatus(0, HOST, 1, False) in launcher.shims)
    second.close()
    serve(launcher, [first], lambda _: len(launcher.shims) == 1)
    assert launcher.hung_up == set()
    first.close()
    serve(launcher, [], lambda _: not launcher.shims)
    assert launcher.hung_up == {HOST}
    assert launcher.hosts == {HOST: {0, 1}}


def test_a_launcher_that_is_gone_is_dead(launcher: LifeLines) -> None:
    (end,) = connect(launcher, 0)
    launcher.close()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not end.is_dead:
        assert time.monotonic() < deadline
        select.select(*end.waits_for(), [], 0.05)
        end.move({*end.waits_for()[0], *end.waits_for()[1]})


def test_a_launcher_that_was_never_there_may_be_elsewhere(launcher: LifeLines) -> None:
    address = launcher.address
    launcher.close()
    for known in (False, True):
        end = LauncherLine(address, 0, HOST, 0, LEASE, known=known)
        select.select(*end.waits_for(), [], TIMEOUT_SECONDS)
        end.move({*end.waits_for()[0], *end.waits_for()[1]})
        assert end.is_dead == known
        assert end.silent_since is not None
        assert isinstance(end.problem, ConnectionRefusedError)


def test_a_line_that_breaks_is_made_again(launcher: LifeLines) -> None:
    (end,) = connect(launcher, 3)
    (descriptor,) = end.waits_for()[0]
    torn = socket.socket(fileno=os.dup(descriptor))
    torn.shutdown(socket.SHUT_RDWR)
    torn.close()
    serve(launcher, [end], lambda _: end.silent_since is not None)
    serve(launcher, [end], lambda _: end.silent_since is None)
    serve(launcher, [end], lambda _: launcher.shims == [ShimStatus(3, HOST, 0, False)])
    assert not end.is_dead


def test_a_newer_line_takes_the_place_of_one_that_only_looks_whole(launcher: LifeLines) -> None:
    (old,) = connect(launcher, 3)
    new = line(launcher, 3)
    serve(launcher, [new], lambda _: new.silent_since is None and len(launcher.shims) == 1)
    new.tell(orphaned=True)
    serve(launcher, [new], lambda _: launcher.shims == [ShimStatus(3, HOST, 0, True)])
    old.close()


def test_a_line_that_is_torn_is_no_goodbye(
    launcher: LifeLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def receive(self: Channel) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "no answer from the other end")

    (end,) = connect(launcher, 3)
    monkeypatch.setattr(Channel, "receive", receive)
    end.tell(orphaned=True)
    serve(launcher, [], lambda _: not launcher.shims)
    assert launcher.hung_up == set()
    end.close()


def test_that_there_is_no_report_stays_known(launcher: LifeLines) -> None:
    """Rank 0 says so; the others know only that the job has ended well."""
    first, second = ends = connect(launcher, 0, 1)
    for end, code in ((first, 0), (first, 74), (second, 0)):
        end.tell(orphaned=False, exit_code=code)
        told = ShimStatus(0 if end is first else 1, HOST, 0, False, code)
        serve(launcher, ends, lambda _, told=told: told in launcher.shims)  # type: ignore[misc]
    assert launcher.exit_code == 74


def test_each_host_is_asked_by_one_of_its_shims(launcher: LifeLines) -> None:
    first, second = connect(launcher, 0, 1)
    other = line(launcher, 2, "n1/1")
    ends = [first, second, other]
    serve(launcher, ends, lambda _: len(launcher.hosts) == 2)
    launcher.ask(7, silent=())
    launcher.ask(8, silent={HOST})
    said = serve(launcher, ends, lambda said: len(said) == 5)
    asked = {end: [m["ask"] for who, m in said if who is end] for end in ends}
    assert asked == {first: [7, 8], second: [8], other: [7, 8]}
    first.send({"answer": 7, "facts": [1]})
    answers: list[Answer] = []
    serve(launcher, ends, lambda _: bool(answers.extend(launcher.take_answers()) or answers))
    assert answers == [Answer(HOST, 7, [1])]


def test_a_note_goes_to_the_shim_of_rank_0(launcher: LifeLines) -> None:
    ends = connect(launcher, 0, 1)
    ends[1].send({"note": {"rank": 1}})
    assert serve(launcher, ends, bool) == [(ends[0], {"note": {"rank": 1}})]


def greet(address: str, key: str) -> Callable[[object], bool]:
    """Connects with some key; returns what tells whether that was refused."""
    host, port, _ = address.split(":")
    end = LauncherLine(f"{host}:{port}:{key}", 0, HOST, 0, LEASE, known=False)

    def refused(_: object = None) -> bool:
        readers, writers = end.waits_for()
        reading, writing, _ = select.select(readers, writers, [], 0)
        end.move({*reading, *writing})
        return end.problem is not None

    return refused


def test_who_does_not_know_the_key_is_nobody(launcher: LifeLines) -> None:
    serve(launcher, [], greet(launcher.address, "0" * 64))
    host, port, _ = launcher.address.split(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"\xff" * 64)
        serve(launcher, [], lambda _: select.select([stranger], [], [], 0)[0] != [])
    assert launcher.shims == []


def test_a_launcher_that_does_not_know_the_key_is_none() -> None:
    """Somebody listens where the launcher did, and takes any proof."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refused = greet(f"127.0.0.1:{listener.getsockname()[1]}:x", "1" * 64)
        refused()
        connection, _ = listener.accept()
        with connection:
            channel = Channel(connection)
            channel.send({"nonce": "n"})
            deadline = time.monotonic() + TIMEOUT_SECONDS
            answered = False
            while not refused():
                assert time.monotonic() < deadline
                if not answered and select.select([connection], [], [], 0)[0]:
                    channel.receive()
                    channel.send({"proof": "0" * 64})
                    answered = True
    assert answered


def hear(connection: socket.socket, channel: Channel) -> Message:
    connection.settimeout(TIMEOUT_SECONDS)
    messages = channel.receive()
    assert messages
    return messages[0]


def test_who_shows_a_wrong_proof_is_nobody(launcher: LifeLines) -> None:
    host, port, _ = launcher.address.split(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.settimeout(TIMEOUT_SECONDS)
        launcher.serve()
        channel = Channel(stranger)
        hear(stranger, channel)
        channel.send({"nonce": "n", "proof": "0" * 64})
        serve(launcher, [], lambda _: select.select([stranger], [], [], 0)[0] != [])
        assert channel.receive() is None
    assert launcher.shims == []


def test_what_a_shim_has_shown_does_not_pass_for_a_launchers() -> None:
    """Somebody who does not know the key has one shim work out the answer to another."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ends, connections, channels = [], [], []
        for rank in range(2):
            end = LauncherLine(f"127.0.0.1:{port}:key", rank, HOST, 0, LEASE, known=False)
            select.select(*end.waits_for(), [], TIMEOUT_SECONDS)
            end.move({*end.waits_for()[1]})
            ends.append(end)
            connections.append(listener.accept()[0])
            channels.append(Channel(connections[-1]))
        nonce = "anything"
        for rank in range(2):
            channels[rank].send({"nonce": nonce})
            select.select(ends[rank].waits_for()[0], [], [], TIMEOUT_SECONDS)
            ends[rank].move({*ends[rank].waits_for()[0]})
            said = hear(connections[rank], channels[rank])
            nonce = said["nonce"]
        channels[0].send({"proof": said["proof"]})
        select.select(ends[0].waits_for()[0], [], [], TIMEOUT_SECONDS)
        ends[0].move({*ends[0].waits_for()[0]})
        assert str(ends[0].problem) == "this is not the job's key"
        for each in [*ends, *connections]:
            each.close()


POLICY = Settings(max_failures=2, failure_window_seconds=10)
WELL, ORPHANED = ShimStatus(0, HOST, 0, False), ShimStatus(1, HOST, 0, True)


def test_when_new_agents_are_started() -> None:
    policy = GenerationPolicy(POLICY)
    assert isinstance(policy.ended([], 0), Over)
    assert isinstance(policy.ended([WELL, ORPHANED], 0, over=True), Over)
    assert isinstance(policy.ended([WELL, None], 0), NotYet)
    assert isinstance(policy.ended([WELL, ORPHANED], 0), Again)
    for _ in range(5):  # hosts, or links, are the cause
        assert isinstance(policy.ended([WELL, ORPHANED], 0, counts=False), Again)
    assert isinstance(policy.ended([ORPHANED], 1), Again)
    verdict = policy.ended([ORPHANED], 9)
    assert isinstance(verdict, Over)
    assert verdict.message.startswith("agents or mpirun failed 3 times within 10 s")
    assert isinstance(policy.ended([ORPHANED], 30), Again)


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
