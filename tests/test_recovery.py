"""Real jobs whose ranks are killed end with the weights of an undisturbed job, bit for bit."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import RunHvdft

from hvd_ft.native import EventType
from hvd_ft.report import read_report

SCRIPT = str(Path(__file__).with_name("recovery_script.py"))
RANKS = 3
STEPS = 36


@dataclass(frozen=True)
class Result:
    """What a rank ended with; batch normalisation's statistics are its own."""

    incarnation: int
    weights: str
    statistics: str


def train(run_hvdft: RunHvdft, style: str, kills: str, *flags: str) -> dict[int, Result]:
    ended = run_hvdft(
        ["run", "-np", str(RANKS), *flags, sys.executable, SCRIPT, style],
        timeout=150,
        env={"KILLS": kills, "HOROVOD_FT_MAX_FAILURES": "10"},
    )
    assert ended.code == 0, ended.err
    results = {}
    for line in ended.out.splitlines():
        if line.startswith("RESULT"):
            _, rank, incarnation, weights, statistics = line.split()
            results[int(rank)] = Result(int(incarnation), weights, statistics)
    assert sorted(results) == list(range(RANKS)), ended.out
    return results


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, dict[int, Result]]:
    """Results by style, filled as they are needed."""
    return {}


@pytest.mark.parametrize(
    ("style", "kills"),
    [
        ("keras", "1:0:13"),
        ("keras", "0:0:20 1:0:28:raise 2:0:28:exit"),  # the coordinator; other ways to die
        ("keras", "0:0:1 1:0:5 2:0:6"),  # before any snapshot, and around the first
        ("keras", "1:0:14 1:1:17 0:0:24 2:0:24"),  # one twice; two at once, one the coordinator
        ("keras", f"0:0:start 1:0:init 2:0:prologue 1:1:{STEPS} 0:1:end"),
        ("loop", "2:0:12 0:0:13 2:1:30"),
    ],
)
def test_killed_ranks_change_nothing(
    run_hvdft: RunHvdft, undisturbed: dict[str, dict[int, Result]], style: str, kills: str
) -> None:
    if style not in undisturbed:
        undisturbed[style] = train(run_hvdft, style, "")
        assert len({result.weights for result in undisturbed[style].values()}) == 1
        assert len({result.statistics for result in undisturbed[style].values()}) == RANKS
    results = train(run_hvdft, style, kills)
    for rank, result in results.items():
        expected = undisturbed[style][rank]
        assert result.weights == expected.weights, rank
        assert result.statistics == expected.statistics, rank
        deaths = [word for word in kills.split() if word.startswith(f"{rank}:")]
        assert result.incarnation == len(deaths)


def test_the_others_wait_and_are_not_restarted(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    results = train(run_hvdft, "keras", "1:0:13", "--report", str(report))
    assert [results[rank].incarnation for rank in range(RANKS)] == [0, 1, 0]
    events = read_report(report).events
    assert [e.rank for e in events if e.type is EventType.FAILED] == [1]
    assert {e.rank for e in events if e.type is EventType.WAITED} == {0, 2}
    restored = [e for e in events if e.type is EventType.RESTORED]
    assert len(restored) == 1
    assert restored[0].detail > 0
