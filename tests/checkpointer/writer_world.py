"""A job of one node with two ranks, played here over real arenas, and its checkpoint writer."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hvd_ft import native
from hvd_ft.checkpoint import catalogue
from hvd_ft.checkpointer import writer as module
from hvd_ft.checkpointer.origin import Origin
from hvd_ft.checkpointer.writer import Writer
from hvd_ft.job.settings import Settings
from hvd_ft.native.checkpointer import Checkpointer

# A rank: takes the snapshots that it is told to, by lines of "loop cut".
RANK = """\
import os, sys
import numpy as np
from hvd_ft import native
from hvd_ft.native.types import Snapshot
from hvd_ft.worker.shared_contents import Part, fingerprints, freeze

worker, begun = native.worker(), -1
print("there", flush=True)
for line in sys.stdin:
    loop, cut = map(int, line.split())
    while begun < loop:
        begun += 1
        worker.loop_begin(begun)
    step = (cut - 1) // 2
    arrays = {"0:w": np.full(100, step), "1:own": np.array(worker.rank)}
    kept, values = freeze(arrays, {"step": step})
    prints = fingerprints(kept, cut, worker.cursor())
    part = Part(kept, values, [], 0, 1, prints=prints)
    assert worker.snapshot_begin(loop, cut, worker.cursor())
    room = np.frombuffer(worker.snapshot_room(loop, part.bytes), np.uint8)
    for _ in part.write(room):
        pass
    worker.snapshot_deliver(loop, Snapshot(cut, worker.cursor(), part.bytes))
    print("taken", flush=True)
"""


LIMIT = 64 << 20  # of an arena


class Rank:
    """A process that takes snapshots."""

    def __init__(self, arenas: Path, rank: int) -> None:
        env = {
            **os.environ,
            "HOROVOD_FT_DIR": str(arenas),
            "HOROVOD_FT_JOB": "job1",
            "HOROVOD_RANK": str(rank),
            "HOROVOD_FT_INCARNATION": "0",
        }
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", RANK]
        self.process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)
        self._await("there")

    def take(self, loop: int, cut: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{loop} {cut}\n")
        self.process.stdin.flush()
        self._await("taken")

    def _await(self, word: str) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline() == f"{word}\n"


class World:
    """A job of one node with two ranks, and its writer."""

    def __init__(self, arenas: Path, folder: Path) -> None:
        self.arenas, self.folder, self.now = arenas, folder, 1000.0
        native.create_node(str(arenas), "job1", 2, LIMIT)
        for rank in range(2):
            native.create_rank(str(arenas), "job1", rank, LIMIT)
        self.native = Checkpointer(str(arenas), "job1")
        self.origin = Origin(folder, "job1", "job1", 5, self.native.place, [0])
        settings = Settings(
            checkpoint_dir=str(folder),
            checkpoint_interval_seconds=600.0,
            checkpoint_keep=2,
            checkpoint_timeout_seconds=30.0,
        )
        self.writer = Writer(self.native, self.origin, settings, None, lambda: self.now)
        self.writer._wait = lambda now: None  # type: ignore[method-assign]
        self.writer._prepare()
        self.ranks = [Rank(arenas, rank) for rank in range(2)]

    def steps(self, count: int = 3) -> None:
        for _ in range(count):
            self.writer._step()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def take(self, loop: int, cut: int) -> None:
        for rank in self.ranks:
            rank.take(loop, cut)

    def damage(self, rank: int, cut: int) -> None:
        """Flips a bit of a rank's snapshot, in its first array."""
        [slot] = [slot for slot, found in self.native.slots(rank, 0) if found.cut == cut]
        with (self.arenas / f"rank-{rank}.arena").open("r+b") as file:
            begin = 4096 + slot * LIMIT
            file.seek(begin)
            at = begin + file.read(4096).index(np.full(9, (cut - 1) // 2).tobytes())
            file.seek(at)
            file.write(b"\x77")

    def checkpoints(self) -> list[str]:
        found = catalogue.find(self.folder)
        assert {each.state for each in found} <= {"complete"}
        return [each.name.removeprefix("job1-") for each in found]


@contextlib.contextmanager
def played(arenas: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Plays such a job, with its checkpoints in a folder."""
    world = World(arenas, folder)
    # The log does not grow here, so a cut is behind any position.
    monkeypatch.setattr(module, "first_behind", lambda cuts, position: max(cuts, default=None))
    yield world
    for rank in world.ranks:
        rank.process.kill()
        rank.process.communicate()
    world.native.close()
