"""The writer's loop, step by step, over real arenas of two nodes whose ranks are played here."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hvd_ft import native
from hvd_ft.checkpoint import catalogue, tensors
from hvd_ft.checkpointer import share, unwritten
from hvd_ft.checkpointer import writer as module
from hvd_ft.checkpointer.drain import drain
from hvd_ft.checkpointer.origin import Origin
from hvd_ft.checkpointer.writer import Writer
from hvd_ft.job.settings import Settings
from hvd_ft.native.checkpointer import Checkpointer
from hvd_ft.native.types import EventType
from hvd_ft.system.stop_signals import END_SIGNAL, HELD_SIGNALS

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
_LONG_SECONDS = 60.0


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


@pytest.fixture
def world(arena_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(arena_dir, tmp_path / "c")
    # The log does not grow here, so a cut is behind any position.
    monkeypatch.setattr(module, "first_behind", lambda cuts, position: max(cuts, default=None))
    yield world
    for rank in world.ranks:
        rank.process.kill()
        rank.process.communicate()
    world.native.close()


def test_a_checkpoint_is_written_when_it_is_due(world: World) -> None:
    world.take(0, 3)
    world.steps()
    assert world.checkpoints() == []
    world.pass_time(600)
    world.steps()
    assert world.checkpoints() == ["loop0-step00000001"]
    world.take(0, 5)
    world.steps()
    assert len(world.checkpoints()) == 1
    for cut, loop in ((7, 0), (9, 0), (1, 1)):
        world.take(loop, cut)
        world.pass_time(600)
        world.steps()
    assert world.checkpoints() == ["loop0-step00000004", "loop1-step00000000"]
    newest = catalogue.find(world.folder)[-1].manifest
    assert newest is not None
    assert {(part.loop, part.step) for part in newest.parts} == {(0, 4), (1, 0)}


def test_one_that_is_asked_for_comes_at_once(world: World) -> None:
    world.take(0, 3)
    world.writer._on_ask(0, None)
    world.steps()
    assert world.checkpoints() == ["loop0-step00000001"]


def test_a_round_waits_for_all_ranks(world: World) -> None:
    world.ranks[0].take(0, 3)
    world.pass_time(600)
    world.steps()
    assert world.checkpoints() == []
    world.ranks[1].take(0, 3)
    world.steps()
    assert world.checkpoints() == ["loop0-step00000001"]


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device", "x")


def test_what_is_wrong_is_said_with_every_checkpoint_and_the_next_one_is_tried(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.take(0, 3)
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_share", full)
        for _ in range(3):
            world.pass_time(600)
            world.steps()
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("written to ")[2] for line in said] == [
        f"{world.folder}: No space left on device (x){more}; training goes on, and the next one is "
        "tried as usual"
        for more in ("", " (2 in a row)", " (3 in a row)")
    ]
    assert unwritten.noted(world.arenas) == (
        f"the latest 3 checkpoints were not written to {world.folder}: No space left on device (x)"
    )
    world.pass_time(600)
    world.steps()
    assert "checkpoints are written again" in capsys.readouterr().err
    assert unwritten.noted(world.arenas) == ""
    assert world.checkpoints() == ["loop0-step00000001"]
    world.take(0, 5)
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_share", full)
        world.pass_time(600)
        world.steps()
    assert "in a row" not in capsys.readouterr().err, "it counts from the latest that was written"
    assert "the latest checkpoint was not written" in unwritten.noted(world.arenas)


def test_the_note_is_gone_too_when_another_writer_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.take(0, 3)
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_share", full)
        world.pass_time(600)
        world.steps()
    assert unwritten.noted(world.arenas)
    settings = Settings(checkpoint_dir=str(world.folder), checkpoint_interval_seconds=600.0)
    again = Writer(world.native, world.origin, settings, None, lambda: world.now)
    again._wait = lambda now: None  # type: ignore[method-assign]
    world.pass_time(1200)
    for _ in range(3):
        again._step()
    assert world.checkpoints() == ["loop0-step00000001"]
    assert unwritten.noted(world.arenas) == ""


def test_an_old_one_that_cannot_be_deleted_is_not_a_missing_one(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.catalogue, "remove", full)
    for cut in (3, 5, 7, 9):
        world.take(0, cut)
        world.pass_time(600)
        world.steps()
    said = capsys.readouterr().err
    assert said == (
        f"hvdft: old files were not deleted from {world.folder}: No space left on device (x)\n"
    )
    assert len(world.checkpoints()) == 4
    assert unwritten.noted(world.arenas) == ""


def test_a_slow_disk_is_told_of_once(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.write_share

    def slow(*arguments: object, **named: object) -> None:
        world.pass_time(601)
        real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "write_share", slow)
    for cut in (3, 5):
        world.take(0, cut)
        world.pass_time(600)
        world.steps(1)
    assert capsys.readouterr().err.count("took 601.0 s, longer than the interval of 600 s") == 1
    assert len(world.checkpoints()) == 2


def test_a_snapshot_that_is_overwritten_is_left_for_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.take(0, 3)
    with monkeypatch.context() as patch:
        patch.setattr(module, "capture", lambda *_: None)
        world.pass_time(600)
        world.steps()
        assert world.checkpoints() == []
    world.take(0, 5)
    world.steps()
    assert world.checkpoints() == ["loop0-step00000002"]


@pytest.mark.parametrize("why", ["the job ends", "the next round begins"])
def test_what_the_first_node_writes_is_not_awaited_for_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    """The first node had no such cut: the others waited for it, and wrote nothing at the end."""
    place = dataclasses.replace(world.native.place, node=1, nodes=2)
    origin = dataclasses.replace(world.origin, place=place, group=[0, 1])
    settings = Settings(checkpoint_dir=str(world.folder), checkpoint_timeout_seconds=30.0)
    writer = Writer(world.native, origin, settings, None)
    writer._wait = lambda now: None  # type: ignore[method-assign]
    looks: list[float] = []

    def later(seconds: float) -> None:
        looks.append(seconds)
        if why == "the job ends":
            writer._ending = True
        else:
            world.native.request()

    monkeypatch.setattr(share.time, "sleep", later)
    world.take(0, 3)
    world.native.request()
    writer._step()
    assert len(looks) == 1
    assert not list(world.folder.glob("**/share-1.json"))
    assert capsys.readouterr().err == ""


def test_shares_that_are_not_seen_are_not_awaited_when_the_job_ends(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(_seconds: float) -> None:
        world.writer._ending = True

    monkeypatch.setattr(share.time, "sleep", ends)
    monkeypatch.setattr(Origin, "shares", lambda *_: [])
    world.take(0, 3)
    world.pass_time(600)
    world.steps(2)
    assert world.writer._ending
    assert capsys.readouterr().err == ""


def test_a_new_loop_gets_a_mark_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[int] = []
    monkeypatch.setattr(world.native, "mark", lambda: marks.append(world.native.loops_of_all))
    monkeypatch.setattr(module, "first_behind", lambda *_: None)
    world.pass_time(600)
    world.steps()
    assert marks == []
    world.take(0, 3)
    world.steps()
    assert marks == [1]
    world.take(1, 3)
    world.steps()
    assert marks == [1, 2]


def test_ranks_that_never_have_a_cut_in_common_are_told_of_once(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.ranks[0].take(0, 3)
    world.ranks[1].take(0, 5)
    world.pass_time(600)
    world.steps()
    assert capsys.readouterr().err == ""
    world.pass_time(631)
    world.steps()
    assert capsys.readouterr().err.count("no snapshot of the same step for 630 s") == 1
    assert unwritten.noted(world.arenas) == "", "no disk has failed: the script may just be done"


def test_a_script_may_take_long_until_its_first_loop_begins(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.writer, "_interval", 1.0)
    world.pass_time(600)
    world.steps()
    world.pass_time(600)
    world.steps()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module, "first_behind", lambda *_: None)
    world.take(0, 3)
    world.steps()
    world.pass_time(30)  # since the loop began
    world.steps()
    assert capsys.readouterr().err == ""
    world.pass_time(2)
    world.steps()
    assert capsys.readouterr().err.count("no snapshot of the same step for 31 s") == 1


def test_a_script_without_loops_is_told_of(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.writer, "_interval", 1.0)
    world.pass_time(600)
    world.steps()
    world.pass_time(601)
    world.steps()
    assert capsys.readouterr().err.count("no snapshot of the same step for 600 s") == 1


def test_a_writer_that_starts_again_goes_on_with_the_round(world: World) -> None:
    world.pass_time(600)
    world.steps(1)
    settings = Settings(checkpoint_dir=str(world.folder))
    again = Writer(world.native, world.origin, settings, None, lambda: world.now)
    again._wait = lambda now: None  # type: ignore[method-assign]
    world.native._seen[0] = 0
    world.take(0, 3)
    again._step()
    again._step()
    assert world.checkpoints() == ["loop0-step00000001"]


def test_the_event_of_a_complete_one(world: World) -> None:
    world.take(0, 3)
    world.pass_time(600)
    world.steps()
    world.native._seen[0] = 0
    kinds = []
    while event := world.native.next_event():
        kinds.append(event.type)
    assert kinds == [EventType.CHECKPOINT, EventType.SHARE, EventType.CHECKPOINTED]


def test_the_end_of_a_job_writes_the_latest_state(world: World) -> None:
    drain(world.native, world.origin, 0.0)
    assert world.checkpoints() == []
    world.take(0, 3)
    world.take(0, 5)
    world.ranks[0].take(0, 7)
    drain(world.native, world.origin, 0.0)
    assert world.checkpoints() == ["loop0-step00000002"], "not all ranks have the newest"
    drain(world.native, world.origin, 0.0)
    assert world.checkpoints() == ["loop0-step00000002"]


@pytest.mark.parametrize("at_end", [True, False], ids=["at the end", "in a round"])
def test_a_damaged_snapshot_comes_into_no_checkpoint(
    world: World, capsys: pytest.CaptureFixture[str], at_end: bool
) -> None:
    world.take(0, 3)
    world.take(0, 5)
    world.damage(1, 5)
    if at_end:
        drain(world.native, world.origin, 0.0)
        assert world.checkpoints() == ["loop0-step00000001"], "the older one"
    else:
        world.pass_time(600)
        world.steps()
        assert world.checkpoints() == []
    said = capsys.readouterr().err
    assert "the snapshot of training loop 0 of rank 1 cannot be used: it is damaged: " in said
    assert "the variable 0:w is not as it was written" in said
    world.take(0, 7)
    world.pass_time(600)
    world.steps()
    assert world.checkpoints()[-1] == "loop0-step00000003", "training goes on"


def test_nothing_is_written_at_a_good_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.take(0, 3)
    monkeypatch.setattr(Checkpointer, "ended_well", True)
    drain(world.native, world.origin, 0.0)
    assert world.checkpoints() == []


def test_a_good_end_ends_the_writing_between_two_writes(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is raised from the signal's handler, as Python may be anywhere."""
    written: list[int] = []
    real = os.write

    def ends(file: int, data: bytes) -> int:
        written.append(file)
        monkeypatch.setattr(Checkpointer, "ended_well", True)
        signal.raise_signal(END_SIGNAL)
        return real(file, data)

    def write(now: float) -> None:
        if written:
            return
        world.take(0, 3)
        world.pass_time(600)
        monkeypatch.setattr(tensors.os, "write", ends)

    world.writer._wait = write  # type: ignore[method-assign]
    before = {number: signal.getsignal(number) for number in HELD_SIGNALS}
    try:
        world.writer.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert len(written) == 1, "the rest of the file, and the other files, are left out"
    assert list(world.folder.iterdir()) == [], "what was begun is removed"
    assert capsys.readouterr().err == ""
    assert unwritten.noted(world.arenas) == ""


def test_a_directory_that_goes_is_no_end(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(world.folder)
    world.folder.write_text("a file")
    world.take(0, 3)
    world.pass_time(600)
    world.steps()
    assert "Not a directory" in capsys.readouterr().err


def test_a_signal_just_before_a_wait_ends_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen as a node that wrote nothing at the end of its job, as it was still waiting."""
    waiting = threading.Thread(target=world.native.wait, args=[1e6], daemon=True)
    world.native.wake()
    waiting.start()
    waiting.join(_LONG_SECONDS)
    assert not waiting.is_alive()
    woken: list[int] = []
    monkeypatch.setattr(world.native, "wake", lambda: woken.append(1))
    world.writer._wait = lambda now: signal.raise_signal(END_SIGNAL)  # type: ignore[method-assign]
    before = {number: signal.getsignal(number) for number in HELD_SIGNALS}
    try:
        world.writer.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert woken
