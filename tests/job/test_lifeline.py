"""Life-lines over real sockets."""

import errno
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from heard_lines import HeardLines

from hvd_ft.job.lifeline_messages import (
    Answer,
    Ask,
    ForReport,
    FromLauncher,
    Lease,
    NodeFacts,
    Note,
    Over,
    ShimStatus,
)
from hvd_ft.launcher.machine.generations import why_again
from hvd_ft.shim.launcher_line import LauncherLine
from hvd_ft.system.channel import Channel, Message
from hvd_ft.system.event_loop import EventLoop

TIMEOUT_SECONDS = 20.0


HOST = "n0/1"
LEASE = 20.0


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    """One for both sides."""
    with EventLoop() as loop:
        yield loop


@pytest.fixture
def launcher(loop: EventLoop) -> Iterator[HeardLines]:
    lines = HeardLines(loop)
    yield lines
    lines.close()


class Line(LauncherLine):
    """A shim's end that notes what is heard over it."""

    def __init__(
        self,
        loop: EventLoop,
        address: str,
        rank: int,
        host: str = HOST,
        *,
        known: bool = False,
        silence_seconds: float = 1000.0,
    ) -> None:
        self.said: list[FromLauncher] = []
        self.is_dead = False
        self.times_lost = 0
        super().__init__(
            loop,
            address,
            ShimStatus(rank, host, 0, False),
            LEASE,
            known=known,
            silence_seconds=silence_seconds,
            on_order=self.said.append,
            on_dead=self._note_death,
            on_lost=self._note_loss,
        )

    def tear(self) -> None:
        """Breaks the connection, as a network can."""
        assert self._connection is not None
        assert self._connection._socket is not None
        self._connection._socket.shutdown(socket.SHUT_RDWR)

    def stand(self) -> None:
        """Reads nothing more, as if its process did not run on."""
        assert self._connection is not None
        assert self._connection._watch is not None
        self._connection._watch.end()

    def _note_death(self) -> None:
        self.is_dead = True

    def _note_loss(self) -> None:
        self.times_lost += 1


def serve(loop: EventLoop, until: Callable[[], object]) -> None:
    """Has everybody go on."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not until():
        assert time.monotonic() < deadline
        loop.run_once(0.05)


def connect(loop: EventLoop, lines: HeardLines, *ranks: int) -> list[Line]:
    ends = [Line(loop, lines.address, rank) for rank in ranks]
    serve(loop, lambda: len(lines.shims) == len(ends))
    return ends


def test_the_launcher_hears_how_shims_are(loop: EventLoop, launcher: HeardLines) -> None:
    first, second = connect(loop, launcher, 0, 1)
    assert launcher.shims == [ShimStatus(0, HOST, 0, False), ShimStatus(1, HOST, 0, False)]
    first.tell(orphaned=True)
    serve(loop, lambda: ShimStatus(0, HOST, 0, True) in launcher.shims)
    first.tell(orphaned=False, generation=1)
    serve(loop, lambda: ShimStatus(0, HOST, 1, False) in launcher.shims)
    second.close()
    serve(loop, lambda: len(launcher.shims) == 1)
    assert launcher.roll.hung_up == set()
    first.close()
    serve(loop, lambda: not launcher.shims)
    assert launcher.roll.hung_up == {HOST}
    assert launcher.roll.hosts == {HOST: {0, 1}}


def test_a_launcher_that_is_gone_is_dead(loop: EventLoop, launcher: HeardLines) -> None:
    (end,) = connect(loop, launcher, 0)
    launcher.close()
    serve(loop, lambda: end.is_dead)


def test_a_launcher_that_was_never_there_may_be_elsewhere(
    loop: EventLoop, launcher: HeardLines
) -> None:
    address = launcher.address
    launcher.close()
    for known in (False, True):
        end = Line(loop, address, 0, known=known)
        serve(loop, lambda end=end: end.problem is not None)  # type: ignore[misc]
        assert end.is_dead == known
        assert end.silent_since is not None
        assert isinstance(end.problem, ConnectionRefusedError)
        end.close()


def test_a_line_that_breaks_is_made_again(loop: EventLoop, launcher: HeardLines) -> None:
    (end,) = connect(loop, launcher, 3)
    end.tear()
    serve(loop, lambda: end.silent_since is not None)
    serve(loop, lambda: end.silent_since is None)
    serve(loop, lambda: launcher.shims == [ShimStatus(3, HOST, 0, False)])
    assert not end.is_dead
    assert end.times_lost == 0


def test_what_happens_while_the_line_is_down_is_told_afterwards(
    loop: EventLoop, launcher: HeardLines
) -> None:
    (end,) = connect(loop, launcher, 3)
    end.tear()
    serve(loop, lambda: end.silent_since is not None)
    end.tell(orphaned=True)
    end.tell(orphaned=False, generation=2)  # a new agent has come meanwhile, and has died too
    end.tell(orphaned=True)
    serve(loop, lambda: launcher.shims == [ShimStatus(3, HOST, 2, True)])


@pytest.mark.parametrize("known", [False, True])
def test_a_launcher_out_of_reach_is_lost_after_its_time_if_it_was_ever_reached(
    known: bool,
) -> None:
    """Something listens, and never answers."""
    clock = [1000.0]
    with (
        EventLoop(lambda: clock[0]) as loop,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        address = f"127.0.0.1:{listener.getsockname()[1]}:key"
        end = Line(loop, address, 0, known=known, silence_seconds=30)
        for second in range(40):
            clock[0] = 1000.0 + second
            loop.run_once(0)
            assert end.times_lost == int(known and second >= 30)
        assert isinstance(end.problem, TimeoutError)
        end.close()


def test_a_launcher_that_is_reached_again_is_not_lost() -> None:
    clock = [1000.0]
    with EventLoop(lambda: clock[0]) as loop:
        launcher = HeardLines(loop)
        (end,) = connect(loop, launcher, 0)
        end.tear()
        serve(loop, lambda: end.silent_since is not None)
        assert end._lost.at == 2000.0
        serve(loop, lambda: end.silent_since is None)
        clock[0] = 3000.0
        loop.run_once(0)
        assert end.times_lost == 0
        end.close()
        launcher.close()


def test_a_newer_line_takes_the_place_of_one_that_only_looks_whole(
    loop: EventLoop, launcher: HeardLines
) -> None:
    (old,) = connect(loop, launcher, 3)
    old.stand()
    new = Line(loop, launcher.address, 3)
    serve(loop, lambda: new.silent_since is None and len(launcher.shims) == 1)
    new.tell(orphaned=True)
    serve(loop, lambda: launcher.shims == [ShimStatus(3, HOST, 0, True)])
    old.close()


def test_the_launcher_says_that_memory_was_lacking_where_an_agent_died(
    loop: EventLoop, launcher: HeardLines
) -> None:
    (line,) = connect(loop, launcher, 3)
    ended = "mpirun ended (exit code 9) before the job"
    assert why_again(launcher.shims, 9) == ended
    lack = "killed for lack of memory: 4.0 GiB used of 4.0 GiB; give it more"
    line.tell(orphaned=True, lack=lack)
    serve(loop, lambda: launcher.shims == [ShimStatus(3, HOST, 0, True, lack=lack)])
    said = f"the agent of rank 3 has died, and the kernel has {lack}"
    assert why_again(launcher.shims, 9) == said
    line.tell(orphaned=False, generation=1)
    serve(loop, lambda: launcher.shims == [ShimStatus(3, HOST, 1, False)])
    assert why_again(launcher.shims, 9) == ended
    line.tell(orphaned=True)  # for another reason
    serve(loop, lambda: launcher.shims == [ShimStatus(3, HOST, 1, True)])
    assert why_again(launcher.shims, 9) == ended


def test_a_line_that_is_torn_is_no_goodbye(
    loop: EventLoop, launcher: HeardLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def receive(self: Channel) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "no answer from the other end")

    (end,) = connect(loop, launcher, 3)
    end.stand()
    monkeypatch.setattr(Channel, "receive", receive)
    end.tell(orphaned=True)
    serve(loop, lambda: not launcher.shims)
    assert launcher.roll.hung_up == set()
    end.close()


def test_that_there_is_no_report_stays_known(loop: EventLoop, launcher: HeardLines) -> None:
    """Rank 0 says so; the others know only that the job has ended well."""
    first, second = connect(loop, launcher, 0, 1)
    for end, code in ((first, 0), (first, 74), (second, 0)):
        end.tell(orphaned=False, exit_code=code)
        told = ShimStatus(0 if end is first else 1, HOST, 0, False, code)
        serve(loop, lambda told=told: told in launcher.shims)  # type: ignore[misc]
    assert launcher.roll.exit_code == 74


def test_each_host_is_asked_by_one_of_its_shims(loop: EventLoop, launcher: HeardLines) -> None:
    first, second = connect(loop, launcher, 0, 1)
    other = Line(loop, launcher.address, 2, "n1/1")
    ends = [first, second, other]
    serve(loop, lambda: len(launcher.roll.hosts) == 2)
    launcher.ask(7, silent=())
    launcher.ask(8, silent={HOST})
    serve(loop, lambda: sum(len(end.said) for end in ends) == 5)
    both = [Ask(7), Ask(8)]
    assert [end.said for end in ends] == [both, [Ask(8)], both]
    answer = Answer(7, NodeFacts(0, 1, "n0", [(1, 0, "mirror", 1, 2, 3)], "op 3"))
    first.send(answer)
    serve(loop, lambda: launcher.answers)
    assert launcher.answers == [(HOST, answer)]


def test_ranks_that_get_another_host_have_no_line(loop: EventLoop, launcher: HeardLines) -> None:
    connect(loop, launcher, 0, 1)
    Line(loop, launcher.address, 2, "n1/2")
    serve(loop, lambda: len(launcher.shims) == 3)
    assert launcher.release([1, 2]) == ["n1/2"]
    assert launcher.roll.hosts == {HOST: {0}}
    assert [shim.rank for shim in launcher.shims] == [0]
    assert launcher.release([1]) == []


def test_a_note_goes_to_the_shim_of_rank_0(loop: EventLoop, launcher: HeardLines) -> None:
    first, second = connect(loop, launcher, 0, 1)
    second.send(ForReport({"rank": 1}))
    serve(loop, lambda: first.said)
    assert first.said == [Note({"rank": 1})]
    assert second.said == []


def test_who_does_not_know_the_key_is_nobody(loop: EventLoop, launcher: HeardLines) -> None:
    host, port, _ = launcher.address.split(":")
    end = Line(loop, f"{host}:{port}:{'0' * 64}", 0)
    serve(loop, lambda: end.problem is not None)
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"\xff" * 64)
        serve(loop, lambda: select.select([stranger], [], [], 0)[0] != [])
    assert launcher.shims == []


DEEP = struct.pack("!I", 100_000) + b"[" * 100_000


def test_a_stranger_that_nests_deeply_ends_no_job(loop: EventLoop, launcher: HeardLines) -> None:
    (end,) = connect(loop, launcher, 0)
    host, port, _ = launcher.address.split(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(DEEP)
        later = Line(loop, launcher.address, 1)
        serve(loop, lambda: ShimStatus(1, HOST, 0, False) in launcher.shims)
    later.close()
    end.close()


def test_a_hundred_idle_connections_keep_no_shim_out(loop: EventLoop, launcher: HeardLines) -> None:
    host, port, _ = launcher.address.split(":")
    idle = []
    for _ in range(100):
        idle.append(socket.create_connection((host, int(port))))
        loop.run_once(0)
    end = Line(loop, launcher.address, 0)
    serve(loop, lambda: launcher.shims == [ShimStatus(0, HOST, 0, False)])
    for each in [*idle, end]:
        each.close()


def test_a_shim_outlives_a_stranger_at_the_launchers_port(loop: EventLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        end = Line(loop, f"127.0.0.1:{listener.getsockname()[1]}:{'1' * 64}", 0)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(DEEP)
            serve(loop, lambda: end.problem is not None)
        end.close()


def test_a_launcher_that_does_not_know_the_key_is_none(loop: EventLoop) -> None:
    """Somebody listens where the launcher did, and takes any proof."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        end = Line(loop, f"127.0.0.1:{listener.getsockname()[1]}:{'1' * 64}", 0)
        connection, _ = listener.accept()
        with connection:
            channel = Channel(connection)
            channel.send({"nonce": "n"})
            serve(loop, lambda: select.select([connection], [], [], 0)[0] != [])
            assert hear(connection, channel)
            assert end.problem is None
            channel.send({"proof": "0" * 64})
            serve(loop, lambda: end.problem is not None)
    assert str(end.problem) == "this is not the job's key"


def hear(connection: socket.socket, channel: Channel) -> Message:
    connection.settimeout(TIMEOUT_SECONDS)
    messages = channel.receive()
    assert messages
    return messages[0]


def test_who_shows_a_wrong_proof_is_nobody(loop: EventLoop, launcher: HeardLines) -> None:
    host, port, _ = launcher.address.split(":")
    with socket.create_connection((host, int(port))) as stranger:
        loop.run_once()
        channel = Channel(stranger)
        hear(stranger, channel)
        channel.send({"nonce": "n", "proof": "0" * 64})
        serve(loop, lambda: select.select([stranger], [], [], 0)[0] != [])
        assert channel.receive() is None
    assert launcher.shims == []


def test_what_a_shim_has_shown_does_not_pass_for_a_launchers(loop: EventLoop) -> None:
    """Somebody who does not know the key has one shim work out the answer to another."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ends, connections, channels = [], [], []
        for rank in range(2):
            ends.append(Line(loop, f"127.0.0.1:{port}:key", rank))
            connections.append(listener.accept()[0])
            channels.append(Channel(connections[-1]))
        nonce = "anything"
        for connection, channel in zip(connections, channels, strict=True):
            channel.send({"nonce": nonce})
            serve(loop, lambda c=connection: select.select([c], [], [], 0)[0] != [])  # type: ignore[misc]
            said = hear(connection, channel)
            nonce = said["nonce"]
        channels[0].send({"proof": said["proof"]})
        serve(loop, lambda: ends[0].problem is not None)
        assert str(ends[0].problem) == "this is not the job's key"
        for each in [*ends, *connections]:
            each.close()


class Gate:
    """Admits the epochs from `since` on, and grants leases or not."""

    def __init__(self) -> None:
        self.since, self.granting = 0, True

    def admits(self, shim: ShimStatus) -> bool:
        return shim.epoch >= self.since

    def grants(self, shim: ShimStatus) -> bool:
        return self.granting


def test_with_leases_every_shim_is_asked_and_its_answer_confirmed(
    loop: EventLoop, launcher: HeardLines
) -> None:
    gate = launcher.gate = Gate()
    first, second = connect(loop, launcher, 0, 1)
    launcher.ask(7, silent=())
    serve(loop, lambda: first.said and second.said)
    second.send(Answer(7))
    serve(loop, lambda: len(second.said) == 2)
    assert (first.said, second.said) == ([Ask(7)], [Ask(7), Lease(7)])
    gate.granting = False
    second.send(Answer(8))
    second.send(Answer(9))
    serve(loop, lambda: len(launcher.answers) == 3)
    assert len(second.said) == 2


def test_a_shim_whose_host_has_lost_its_place_is_told_to_end_and_counts_for_nothing(
    loop: EventLoop, launcher: HeardLines
) -> None:
    gate = launcher.gate = Gate()
    (present,) = connect(loop, launcher, 3)
    gate.since = 1
    launcher.forget([HOST])
    assert launcher.shims == []
    assert launcher.roll.hosts == {}
    serve(loop, lambda: present.said)  # it has come back over a new line
    assert present.said == [Over(files_stay=False)]
    assert launcher.shims == []
    assert launcher.roll.hosts == {}
