"""Faults of a cluster, without a cluster."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.tools.cluster import faults
from hvd_ft.tools.cluster.cluster_dir import ClusterDir


@contextlib.contextmanager
def _pidfd_of(process: subprocess.Popen[bytes]) -> Iterator[int]:
    descriptor = os.pidfd_open(process.pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Gives a function that kills a node, whose link cannot be deleted because of a reason."""

    def kill(reason: str) -> int:
        def refuse(*_: object) -> None:
            raise HvdFtError(f"nsenter fails: {reason}")

        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        monkeypatch.setattr(faults, "pidfd_behind", lambda server: _pidfd_of(process))
        monkeypatch.setattr(faults, "_switch_of", lambda home: 0)
        monkeypatch.setattr(faults, "cut", lambda home, node: None)
        monkeypatch.setattr(faults.tools, "batch", refuse)
        home = ClusterDir("none")
        try:
            faults.kill(home, "n2")
        finally:
            process.kill()
            code = process.wait()
        return code

    return kill


def test_the_link_of_a_killed_node_may_go_by_itself(kill: Callable[[str], int]) -> None:
    """An idle node's network ends with its last process, and takes the link along."""
    assert kill('Cannot find device "n2"') == -signal.SIGKILL


def test_a_link_that_stays_is_told(kill: Callable[[str], int]) -> None:
    with pytest.raises(HvdFtError, match="not permitted"):
        kill("Operation not permitted")
