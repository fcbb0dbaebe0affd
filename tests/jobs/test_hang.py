"""Stuck workers: the rule alone, then real jobs with stopped and looping workers."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Ended, RunHvdft

from hvd_ft.agent.hang_rule import HangRule, Stuck
from hvd_ft.native.types import State, Watch

COMPUTES = Watch(State.RUNNING, 0, 0, True, 5, 5, 10, 5)
WAITS = replace(COMPUTES, pending=1)
RUNG = replace(WAITS, asleep=False)  # and did not wake up


def judged(mine: Watch, *others: Watch, seconds: int = 10) -> Stuck | None:
    """What the rule with 10 s says of rank 0 after so many seconds without a change."""
    rule = HangRule(0, 10.0)
    ranks = dict(enumerate((mine, *others)))
    verdicts = [rule.observe(now, ranks) for now in range(100, 101 + seconds)]
    assert verdicts[:10] == [None] * 10
    return verdicts[-1]


def test_who_waits_rightly_is_not_stuck() -> None:
    assert judged(WAITS, WAITS, COMPUTES, seconds=50) is None


def test_who_lets_others_wait_is_stuck() -> None:
    assert judged(COMPUTES, WAITS, COMPUTES, WAITS) == Stuck(10.0, [1, 3])
    assert judged(COMPUTES, WAITS, seconds=9) is None


def test_while_nobody_waits_nobody_is_stuck() -> None:
    assert judged(COMPUTES, COMPUTES, replace(WAITS, state=State.DONE), seconds=50) is None


def test_who_was_rung_and_does_not_wake_up_is_stuck() -> None:
    assert judged(RUNG, replace(WAITS, state=State.DONE)) == Stuck(10.0, [])
    assert judged(RUNG, RUNG) == Stuck(10.0, [1]), "all are stopped"


def test_who_starts_and_lets_others_wait_is_stuck() -> None:
    assert judged(replace(COMPUTES, state=State.STARTING), WAITS) == Stuck(10.0, [1])


@pytest.mark.parametrize("state", [State.RESTARTING, State.REPLAYING, State.DONE])
def test_whom_the_recovery_timeout_covers_is_not_judged(state: State) -> None:
    assert judged(replace(COMPUTES, state=state), WAITS, seconds=50) is None


@pytest.mark.parametrize("field", ["contributed", "executed", "announced", "step", "pending"])
def test_whatever_it_does_is_a_sign_of_life(field: str) -> None:
    rule = HangRule(0, 10.0)
    for now in range(50):
        mine = replace(RUNG, **{field: 1 + now // 9})
        assert rule.observe(now, {0: mine, 1: WAITS}) is None


def test_the_ring_just_before_a_look_is_no_hang() -> None:
    rule = HangRule(0, 10.0)
    for now in range(50):
        assert rule.observe(now, {0: WAITS, 1: WAITS}) is None
    assert rule.observe(50, {0: RUNG, 1: WAITS}) is None
    assert rule.observe(51, {0: WAITS, 1: WAITS}) is None


def test_others_that_have_just_begun_to_wait_do_not_count() -> None:
    rule = HangRule(0, 10.0)
    for now in range(50):
        assert rule.observe(now, {0: COMPUTES, 1: COMPUTES}) is None
    for now in range(50, 60):
        assert rule.observe(now, {0: COMPUTES, 1: WAITS}) is None
    assert rule.observe(60, {0: COMPUTES, 1: WAITS}) == Stuck(60.0, [1])


def test_a_machine_that_stood_still_is_no_hang() -> None:
    rule = HangRule(0, 10.0)
    for now in range(9):
        rule.observe(now, {0: COMPUTES, 1: WAITS})
    assert rule.observe(1000, {0: COMPUTES, 1: WAITS}) is None
    for now in range(1001, 1010):
        assert rule.observe(now, {0: COMPUTES, 1: WAITS}) is None
    assert rule.observe(1010, {0: COMPUTES, 1: WAITS}) is not None


def test_in_words() -> None:
    assert str(Stuck(5.0, [0, 1])) == "was stuck: ranks 0, 1 waited 5.0 s for it"
    assert str(Stuck(5.0, [2])) == "was stuck: rank 2 waited 5.0 s for it"
    assert str(Stuck(5.0, [])) == "was stuck: it made no progress for 5.0 s"


# ---------------------------------------------------------------- real jobs

JOB = """\
import os, signal, sys, time
import hvd_ft.tensorflow as hvd
import tensorflow as tf
from hvd_ft import native

hvd.init()
hangs = sys.argv[1:]  # of rank 1's incarnations


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_rank_1_where_it_waits():
    view = native.Observer(os.environ["HOROVOD_FT_DIR"])
    waits = False
    while not waits:
        time.sleep(0.01)  # no event tells of it
        its, mine = view.watch(1), view.watch(0)
        waits = its.pending and its.asleep and its.executed == mine.executed
    os.kill(view.status(1).pid, signal.SIGSTOP)


total = 0.0
for step in range(6):
    hang = hangs[hvd.incarnation()] if hvd.rank() == 1 and hvd.incarnation() < len(hangs) else ""
    if hang == "stops" and step == 2:
        stop()
    while hang == "loops" and step == 3:
        pass
    if hvd.rank() == 0 and "waits" in hangs and step == 4:
        # It comes later than rank 1, and the sum is complete without that.
        stop_rank_1_where_it_waits()
    total += float(hvd.allreduce(tf.constant(float(step)), op=hvd.Sum, name="x"))
os.write(1, f"TOTAL {total} {hvd.incarnation()}\\n".encode())  # in one piece
"""


def run(run_hvdft: RunHvdft, folder: Path, *hangs: str, max_failures: int) -> Ended:
    script = folder / "job.py"
    script.write_text(JOB)
    return run_hvdft(
        ["run", "-np", "2", sys.executable, str(script), *hangs],
        env={
            "HOROVOD_FT_HANG_TIMEOUT_SECONDS": "2.5",
            "HOROVOD_FT_MAX_FAILURES": str(max_failures),
        },
    )


SLOW = """\
import os
import time
import hvd_ft.tensorflow as hvd
import tensorflow as tf


def think():
    time.sleep(5)


def train():
    if hvd.rank() == 1:
        think()
    return float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="x"))


hvd.init()
hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="x")
total = train()
os.write(1, f"TOTAL {total}\\n".encode())  # in one piece
"""


@pytest.mark.shows
def test_stuck_workers_are_killed_and_restarted(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    ended = run(run_hvdft, tmp_path, "stops", "loops", "waits", max_failures=3)
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["TOTAL 30.0 0", "TOTAL 30.0 3"]
    lines = [line for line in ended.err.splitlines() if "was stuck" in line]
    assert len(lines) == 3
    for incarnation, line in enumerate(lines, 1):
        assert line.startswith("hvdft: rank 1 was stuck: ")
        assert f"; killed at step 0; restarting as incarnation {incarnation}" in line
    for line in lines[:2]:
        assert "rank 0 waited " in line
    assert "s for it; it is stopped (SIGSTOP); killed" in lines[0]
    assert re.search(r"s for it; it is at \S+\.py:\d+ in <module>; killed", lines[1])


def test_a_rank_that_others_wait_for_is_named_with_its_stack(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    script, report = tmp_path / "slow.py", tmp_path / "report.jsonl"
    script.write_text(SLOW)
    ended = run_hvdft(
        ["run", "-np", "2", "--report", str(report), sys.executable, str(script)],
        env={"HOROVOD_FT_STALL_WARNING_SECONDS": "1"},
    )
    assert ended.code == 0, ended.err
    assert ended.out.count("TOTAL 2.0") == 2
    found = re.search(
        r"hvdft: rank 1 has kept rank 0 waiting for \d+ s: it is at (\S+) in think\n"
        r"    (\S+) in train\n    (\S+) in <module>\n",
        ended.err,
    )
    assert found, ended.err
    assert all(place.startswith(f"{script}:") for place in found.groups())
    notes = [n for n in map(json.loads, report.read_text().splitlines()) if n.get("text")]
    assert all((n["type"], n["rank"], n["incarnation"]) == ("STACKS", 1, 0) for n in notes)
    assert "in think" in notes[0]["text"]
    assert 1 <= len(notes) == ended.err.count("has kept rank 0 waiting") <= 3  # 1, 2, 4 s, …


def test_who_always_hangs_stops_the_job(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    ended = run(run_hvdft, tmp_path, "stops", max_failures=0)
    assert ended.code == 137
    assert "hvdft: rank 1 failed 1 times within 300 s" in ended.err
    assert "was stuck: rank 0 waited" in ended.err
