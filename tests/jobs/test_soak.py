"""The soak: its draw of kills, and how a hang is noticed and reported."""

import importlib.util
import random
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT

from hvd_ft.launcher.job import Job, resolve
from hvd_ft.launcher.run import launch
from hvd_ft.native.types import State, Status

SCRIPT = ROOT / "scripts" / "soak.py"


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


class Ranks:
    """Three ranks; rank 1 is behind."""

    size = 3

    def __init__(self) -> None:
        self.ranks = [Status(State.WAITING, 0, 10 + rank, 5, 90, 0) for rank in range(3)]
        self.ranks[1] = Status(State.REPLAYING, 2, 21, 4, 88, 0)

    def status(self, rank: int) -> Status:
        return self.ranks[rank]


def test_a_seed_gives_the_same_strikes_and_not_more_than_told(soak: ModuleType) -> None:
    def strikes() -> list[object]:
        plan = soak.Plan(random.Random(1), 6)
        ticks = [tick / 4 for tick in range(1000)]
        return [(tick, plan.victims(range(4))) for tick in ticks if plan.due(tick)]

    assert len(strikes()) == 6
    assert strikes() == strikes()


def test_victims_are_mostly_one_sometimes_several_never_none(soak: ModuleType) -> None:
    plan = soak.Plan(random.Random(1), 0)
    drawn = [plan.victims([0, 2, 3]) for _ in range(300)]
    sizes = [len(victims) for victims in drawn]
    assert set(sizes) == {1, 2, 3}
    assert sizes.count(1) > 150
    assert {rank for victims in drawn for rank, _ in victims} == {0, 2, 3}
    assert {way for victims in drawn for _, way in victims} == set(soak.WAYS)
    assert all(len(dict(victims)) == len(victims) for victims in drawn)
    assert plan.victims([]) == []


def test_stillness_counts_from_the_last_change(soak: ModuleType) -> None:
    observer, stillness = Ranks(), soak.Stillness()
    assert [stillness.seconds(observer, now) for now in (5.0, 7.0)] == [0.0, 2.0]
    observer.ranks[1] = replace(observer.ranks[1], executed=89)
    assert [stillness.seconds(observer, now) for now in (8.0, 9.0)] == [0.0, 1.0]
    observer.ranks[0] = replace(observer.ranks[0], step=99)  # steps without a collective
    assert stillness.seconds(observer, 10.0) == 2.0


def test_a_hang_names_who_was_waited_for(soak: ModuleType) -> None:
    assert soak.waited_for(Ranks()) == ("rank 1, replaying, incarnation 2, pid 21, 88 ops executed")


STANDS_STILL = "import signal; from hvd_ft import native; native.worker(); signal.pause()"


@pytest.mark.job
def test_a_job_that_stands_still_is_ended_and_says_where(
    soak: ModuleType, arena_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_FT_ARENA_DIR", str(arena_dir))
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    monkeypatch.setattr(soak, "HANG_SECONDS", 1.0)
    monkeypatch.setattr(soak, "LAST_WORDS_SECONDS", 1.0)
    shown = soak.Display(None, soak.Tally())
    killer = soak.Killer(soak.Plan(random.Random(1), 0), 0.0)
    with pytest.raises(soak.Hang, match=r"no progress for 1 s; waited for rank 0, .*; rank 1, "):
        launch(resolve(Job(2, [sys.executable, "-c", STANDS_STILL])), shown, killer)
    assert any("Fatal Python error: Aborted" in line for line in shown.lines)
    assert not list(arena_dir.glob("*/*/"))


def test_the_last_whole_line_of_a_rank_counts(soak: ModuleType) -> None:
    def line(rank: int, digest: str) -> str:
        return f'{{"rank": {rank}, "losses": [0.5, 1.0], "weights_sha256": "{digest}"}}'

    torn = line(1, "c3")[:-6]
    lines = ["hvdft: rank 1 died", line(0, "a1"), torn + line(1, "b2"), torn, line(0, "b2")]
    assert soak.ended(lines) == {0: "b2", 1: "b2"}


@pytest.mark.parametrize("what", ["wrong", "hangs", "broken"])
def test_one_failure_fails_the_soak(soak: ModuleType, what: str) -> None:
    tally = soak.Tally(jobs=3)
    assert not tally.failed
    setattr(tally, what, 1)
    assert tally.failed
