"""The handshake of an agent that reattaches to a shim."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import forked

from hvd_ft.launcher.machine.job_generation import STARTS_IN_ADOPTION
from hvd_ft.shim.messages import PreemptAsked, Reattached, Takeover, to_wire
from hvd_ft.shim.reattach import answer_seconds, reattach
from hvd_ft.system.handoff import socket_path
from hvd_ft.system.wire import pack


def test_what_the_shim_says_right_after_its_answer_is_heard(tmp_path: Path) -> None:
    """A preemption, say: the launcher sends it as soon as the shim has the agent."""
    listener = socket.socket(socket.AF_UNIX)
    with socket_path(str(tmp_path), "shim-0") as path:
        listener.bind(path)
    listener.listen()

    connections = []

    def answer() -> None:
        connections.append(listener.accept()[0])
        answers = [Reattached(shim=1, worker=None, running=[]), PreemptAsked()]
        connections[0].sendall(b"".join(pack(to_wire(each)) for each in answers))

    thread = threading.Thread(target=answer)
    thread.start()
    with listener:
        found = reattach(str(tmp_path), 0, Takeover(1, 20, None))
        thread.join()
    assert found is not None
    assert found.channel.receive() == [to_wire(PreemptAsked())]
    found.channel.close()
    connections[0].close()


@contextlib.contextmanager
def shim_that(tmp_path: Path, acts: Callable[[socket.socket], object]) -> Iterator[int]:
    """Yields the pid of a process that listens in the place of rank 2's shim, and then acts."""
    listener = socket.socket(socket.AF_UNIX)
    with socket_path(str(tmp_path), "shim-2") as path:
        listener.bind(path)

    def live() -> None:
        listener.listen()  # by the child: whoever listens is the peer of those who connect
        told.sendall(b".")
        acts(listener)
        os._exit(0)

    hears, told = socket.socketpair()
    child = forked(live)
    with listener, hears, told:
        assert hears.recv(1) == b"."
        listener.close()
        yield child


def test_a_shim_that_dies_before_it_answers_is_none(tmp_path: Path) -> None:
    """The agent starts another one, as if it had come after the death."""
    with shim_that(tmp_path, lambda listener: listener.accept()[0].recv(1)) as child:
        assert reattach(str(tmp_path), 2, Takeover(1, 20, None)) is None
    assert os.waitpid(child, 0)[1] == 0


def test_a_shim_that_does_not_answer_is_killed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Otherwise each generation of agents would fail at it, until the job is given up."""
    with shim_that(tmp_path, lambda _: os.kill(os.getpid(), signal.SIGSTOP)) as child:
        assert reattach(str(tmp_path), 2, Takeover(1, 20, None), 0.1) is None
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert "the shim of rank 2 did not answer new agents" in capfd.readouterr().err


@pytest.mark.parametrize("adoption_seconds", [0.1, 9.0, 59.0, 60.0, 1000.0])
def test_a_silent_shim_is_killed_before_its_new_agent_is(adoption_seconds: float) -> None:
    assert answer_seconds(adoption_seconds) <= 0.8 * adoption_seconds / STARTS_IN_ADOPTION
