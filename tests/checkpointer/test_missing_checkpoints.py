"""What a checkpoint writer says and notes when there is no checkpoint, or a slow one."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from writer_world import World, played

from hvd_ft.checkpointer import unwritten
from hvd_ft.checkpointer import writer as module
from hvd_ft.checkpointer.drain import drain
from hvd_ft.checkpointer.writer import Writer
from hvd_ft.job.settings import Settings


@pytest.fixture
def world(arena_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with played(arena_dir, tmp_path / "c", monkeypatch) as world:
        yield world


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
        f"{world.folder}: No space left on device (x){more}; training continues, and the next "
        "one is tried as usual"
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
    assert world.checkpoints()[-1] == "loop0-step00000003", "training continues"


def test_a_directory_that_goes_is_no_end(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(world.folder)
    world.folder.write_text("a file")
    world.take(0, 3)
    world.pass_time(600)
    world.steps()
    assert "Not a directory" in capsys.readouterr().err
