"""A host that replaces another one has input areas of the job's size, whatever its setting is."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hvd_ft import native
from hvd_ft.agent import job_setup
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.job.launch import Launch
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings
from hvd_ft.shim.client import ShimClient

WINDOW = 4 << 20
WINDOWS, FILES = "finding how far ranks may be ahead", "looking for the job's files"


class Meeting:
    """Rank 1's agent meets that of rank 0, on another host, which has this to say."""

    rank, size = 1, 2

    def __init__(self, elsewhere: dict[str, Any]) -> None:
        self._elsewhere = elsewhere
        self.told: dict[str, Any] = {}

    def agree(self, what: str, act: Callable[[], Any]) -> list[Any]:
        self.told[what] = act()
        return [self._elsewhere.get(what), self.told[what]]


def test_a_fresh_host_has_the_job_s_window(
    arena_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_setup, "rejoin", lambda *_: None)  # what the log has is another test's
    settings = Settings(arena_dir=str(arena_dir), arena_bytes=64 << 20, node_window_bytes=256 << 10)
    shim = cast("ShimClient", SimpleNamespace(found=True, watch_job=lambda _: None))
    with contextlib.ExitStack() as stack:

        def meet(elsewhere: dict[str, Any]) -> Meeting:
            meeting = Meeting(elsewhere)
            hosts = Nodes((0, 1, 2))
            at, launch = cast("Rendezvous", meeting), Launch(job="fresh")
            job_setup.find_files(at, hosts, settings, launch, shim=shim, stack=stack)
            return meeting

        assert meet({FILES: True, WINDOWS: WINDOW}).told[WINDOWS] == 0
        [arena] = arena_dir.rglob("node.arena")
        observer = native.Observer(str(arena.parent))
        assert observer.window_bytes == WINDOW
        observer.close()
        native.Agent(str(arena.parent), "fresh", 1).close()  # nor does the rank's file differ
        assert meet({FILES: False, WINDOWS: 0}).told[WINDOWS] == WINDOW  # now it is the other's
