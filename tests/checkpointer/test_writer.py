"""The writer's loop, step by step, over real arenas of two nodes whose ranks are played here."""

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from writer_world import World, played

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

_LONG_SECONDS = 60.0


@pytest.fixture
def world(arena_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with played(arena_dir, tmp_path / "c", monkeypatch) as world:
        yield world


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
