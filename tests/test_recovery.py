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
        ("large", "1:0:5 2:0:8 0:0:17 2:1:24"),  # in the step in which a snapshot is copied
        ("chosen", "1:0:4 0:0:26"),
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


def test_the_report_tells_what_snapshots_cost(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    train(run_hvdft, "chosen", "", "--report", str(report))
    told = read_report(report)
    for rank in told.facts["ranks"]:
        costs = rank["snapshots"]
        taken = [e for e in told.events if (e.type, e.rank) == (EventType.SNAPSHOT, rank["rank"])]
        assert costs["count"] == len(taken) >= 2, "the first, and the last"
        assert costs["steps"] >= 1
        assert 0 < costs["stall_ns"] < costs["training_ns"]
        assert costs["copy_ns"] > 0


OTHER = """\
import os, signal, sys, time
import hvd_ft.tensorflow as hvd
import tensorflow as tf

again = "{what}" if int(os.environ["HOROVOD_FT_INCARNATION"]) else ""
hvd.init()
dense, sparse = tf.ones([4 if again == "shape" else 3]), tf.ones([2])


@tf.function
def step(order):
    for name in order:
        with tf.control_dependencies([] if name == order[0] else [first]):
            first = hvd.allreduce(dense if name == "dense" else sparse, name=name)


step(("sparse", "dense") if again == "order" else ("dense", "sparse"))
if again == "branch":
    hvd.broadcast(tf.ones([5]), 0)
if again == "end":
    sys.exit()
if again == "exit":
    os._exit(0)
hvd.allreduce(tf.ones([3]), name="last")
if hvd.rank() == 1 and not again:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(tf.ones([3]), name="never")
"""

DENSE = "ALLREDUCE average float32 [3] "


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("shape", [f"op 0 is not what was agreed: the log has '{DENSE}", "only type, shape or"]),
        ("order", [f"op 0 of 3 is '{DENSE}", "the log has it later"]),
        (
            "branch",
            [f"op 2 of 3 is '{DENSE}", "'BROADCAST from 0 float32 [5] ", "a branch on time"],
        ),
        (
            "end",
            ["script ends after 2 collectives, but", f"took part in 3; the next one was '{DENSE}"],
        ),
        ("exit", ["script ended after 2 collectives, but", "took part in 3; likely a branch"]),
    ],
)
def test_a_script_that_does_something_else_is_stopped(
    run_hvdft: RunHvdft, tmp_path: Path, what: str, said: list[str]
) -> None:
    script = tmp_path / "other.py"
    script.write_text(OTHER.replace("{what}", what))
    ended = run_hvdft(
        ["run", "-np", "2", sys.executable, str(script)],
        env={"HOROVOD_FT_REPLAY_TIMEOUT_SECONDS": "2"},
    )
    assert ended.code == 1
    [line] = [line for line in ended.err.splitlines() if "the same collectives" in line]
    assert line.startswith("hvdft: rank 1")
    for words in said:
        assert words in line
