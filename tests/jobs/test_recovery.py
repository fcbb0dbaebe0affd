"""Real jobs whose ranks are killed end with the weights of an undisturbed job, bit for bit."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import SCRIPTS, Once, RunHvdft

from hvd_ft.job.drills import Drill, parse
from hvd_ft.native.types import EventType, Point
from hvd_ft.reports.report import Report, read_report

SCRIPT = str(SCRIPTS / "recovery_script.py")
pytestmark = pytest.mark.timeout(600)  # two jobs, one of many restarts
STEPS = 36
RANKS = {"keras": 3, "large": 2}  # by style


@dataclass(frozen=True)
class Result:
    """What a rank ended with; batch normalisation's statistics are its own."""

    incarnation: int
    weights: str
    statistics: str


@dataclass(frozen=True)
class Run:
    """A job that ended well."""

    results: dict[int, Result]
    report: Report
    err: str


def train(
    run_hvdft: RunHvdft,
    tmp_path: Path,
    style: str,
    drills: Sequence[str] = (),
    *,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Run:
    report = tmp_path / f"{style}.jsonl"
    inject = [word for drill in drills for word in ("--inject", drill)]
    flags = ["-np", str(RANKS[style]), "--report", str(report), *inject, *flags]
    ended = run_hvdft(
        ["run", *flags, sys.executable, SCRIPT, style],
        env={"HOROVOD_FT_MAX_FAILURES": "10", **(env or {})},
    )
    assert ended.code == 0, ended.err
    (tmp_path / f"{style}.out").write_text(ended.out)
    (tmp_path / f"{style}.err").write_text(ended.err)
    struck = re.findall(r"^hvdft: drill: (.*)$", ended.err, re.MULTILINE)
    # An mpirun that dies takes with it what it has not printed yet.
    lost = {drill for drill in drills if drill.startswith("mpirun")}
    assert sorted({*struck, *lost}) == sorted(drills), ended.err
    return read_run(tmp_path, style)


def read_run(folder: Path, style: str) -> Run:
    """What a job has left in a folder."""
    out = (folder / f"{style}.out").read_text()
    results = {}
    for line in out.splitlines():
        if line.startswith("RESULT"):
            _, rank, incarnation, weights, statistics = line.split()
            results[int(rank)] = Result(int(incarnation), weights, statistics)
    assert sorted(results) == list(range(RANKS[style])), out
    err = (folder / f"{style}.err").read_text()
    return Run(results, read_report(folder / f"{style}.jsonl"), err)


# Every point of a worker's life, every way to die, ranks at once and ranks in turn; the shortest
# first, as it is in every run.
DRILLS = {
    "before and after a snapshot is delivered": [
        *("rank=0,point=fingerprints,step=5", "rank=1,point=snapshot_drop,step=10"),
        "rank=2,point=snapshot_delivered,step=15",
    ],
    "in negotiation and in ops": [
        # All at once.
        *("rank=0,point=start,signal=SEGV", "rank=1,point=attach", "rank=2,point=join"),
        *(
            "rank=0,incarnation=1,point=propose,step=3",
            "rank=1,incarnation=1,point=announce,step=4",
        ),
        *("rank=2,incarnation=1,point=wait", "rank=0,incarnation=2,point=proposed,step=9"),
        *("rank=1,incarnation=2,point=contribute,step=11", "rank=2,incarnation=2,point=executed"),
        *("rank=0,incarnation=3,point=copy_in,step=14", "rank=2,incarnation=3,step=20,signal=ABRT"),
        # The others wait for it in an op: it is the last to contribute, so it reduces.
        *("rank=1,incarnation=3,step=20,signal=TERM", "rank=0,incarnation=4,point=reduce"),
    ],
    "around snapshots, in the recovery of others, after the last step": [
        *("rank=0,point=snapshot_write,step=10", "rank=1,point=snapshot_publish,step=10"),
        *("rank=2,point=snapshot_published,step=10", "rank=0,incarnation=1,point=restore"),
        *("rank=1,incarnation=1,point=replay,step=5", "rank=2,incarnation=1,point=restore"),
        # Rank 0 has to come back to its last step while the others have ended, and one dies.
        *(f"rank=0,incarnation=2,point=copy_out,step={STEPS}", "rank=2,incarnation=2,point=end"),
        "rank=1,incarnation=2,point=exit",
    ],
}
ONE_RANK = ("step=13", "incarnation=1,point=restore", "incarnation=2,point=snapshot_write,raise")
DRILLS_OF_ONE = [f"rank=1,{drill}" for drill in ONE_RANK]


def test_no_point_is_left_out() -> None:
    drills = [*DRILLS_OF_ONE, *(text for texts in DRILLS.values() for text in texts)]
    elsewhere = {Point.SEND, Point.SENT, Point.RECEIVE, Point.RECEIVED}  # test_p2p.py has these
    # test_shared_snapshots.py has the first of these, test_in_place.py the second.
    elsewhere |= {Point.MARK, Point.RETURN}
    assert {parse(text).point for text in drills} == set(Point) - elsewhere


@pytest.mark.shows
@pytest.mark.parametrize("name", DRILLS)
def test_killed_ranks_change_nothing(
    run_hvdft: RunHvdft, once: Once, tmp_path: Path, name: str
) -> None:
    compare(run_hvdft, once, tmp_path, "keras", DRILLS[name])


def test_large_snapshots(run_hvdft: RunHvdft, once: Once, tmp_path: Path) -> None:
    # Rank 0 dies in steps in which a snapshot is copied; rank 1 has chosen when to take one.
    drills = ["rank=0,step=5", "rank=0,incarnation=1,step=17"]
    drills += ["rank=1,op=12,exit=1", "rank=1,incarnation=1,step=26,raise"]
    compare(run_hvdft, once, tmp_path, "large", drills)


def test_the_others_wait_and_are_not_restarted(
    run_hvdft: RunHvdft, once: Once, tmp_path: Path
) -> None:
    run = compare(run_hvdft, once, tmp_path, "keras", DRILLS_OF_ONE)
    assert [run.results[rank].incarnation for rank in range(3)] == [0, 3, 0]
    events = run.report.events
    assert {e.rank for e in events if e.type is EventType.WAITED} == {0, 2}
    restored = [(e.rank, e.incarnation) for e in events if e.type is EventType.RESTORED]
    assert restored == [(1, 2), (1, 3)]


def compare(
    run_hvdft: RunHvdft,
    once: Once,
    tmp_path: Path,
    style: str,
    drills: list[str],
    *,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Run:
    """Runs the script with drills: each has to strike, and none to change the weights."""
    expected = reference(run_hvdft, once, style).results
    run = train(run_hvdft, tmp_path, style, drills, flags=flags, env=env)
    for rank, result in run.results.items():
        assert result.weights == expected[rank].weights, rank
        assert result.statistics == expected[rank].statistics, rank
    died = [e for e in run.report.events if e.type is EventType.FAILED]
    codes = [(e.rank, e.incarnation, os.waitstatus_to_exitcode(e.detail)) for e in died]
    meant = [(drill.rank, drill.incarnation, exit_code(drill)) for drill in map(parse, drills)]
    assert sorted(codes) == sorted(meant)
    return run


def reference(run_hvdft: RunHvdft, once: Once, style: str) -> Run:
    """Returns the style's undisturbed run, the same one whenever it is asked for."""
    folder = once(f"undisturbed-{style}", lambda folder: train(run_hvdft, folder, style))
    run = read_run(folder, style)
    results = run.results.values()
    assert len({result.weights for result in results}) == 1
    assert len({result.statistics for result in results}) == RANKS[style]
    return run


def exit_code(drill: Drill) -> int:
    """How a worker ends that does this drill; Python exits with 1 when it raises."""
    return -drill.value if drill.way == "s" else drill.value or 1


def test_the_report_tells_what_snapshots_cost(
    run_hvdft: RunHvdft, once: Once, tmp_path: Path
) -> None:
    told = reference(run_hvdft, once, "large").report
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
    first = hvd.allreduce(dense if order[0] == "dense" else sparse, name=order[0])
    with tf.control_dependencies([first]):
        second = hvd.allreduce(dense if order[1] == "dense" else sparse, name=order[1])
    return first, second  # or they are pruned


step(("sparse", "dense") if again == "order" else ("dense", "sparse"))
if again == "branch":
    hvd.broadcast(tf.ones([5]), 0)
if again == "end":
    sys.exit()
if again == "exit":
    os._exit(0)
hvd.allreduce(tf.ones([3]), name="last")
if not again:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(tf.ones([3]), name="never")
"""

DENSE = "ALLREDUCE average float32 [3] "


@pytest.mark.shows
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
        [
            "run",
            "-np",
            "1",
            "env",
            "HOROVOD_FT_REPLAY_TIMEOUT_SECONDS=2",
            sys.executable,
            str(script),
        ]
    )
    assert ended.code == 1
    [line] = [line for line in ended.err.splitlines() if "the same collectives" in line]
    assert line.startswith("hvdft: rank 0")
    for words in said:
        assert words in line
