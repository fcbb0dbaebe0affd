"""Damage to a job's files between a worker's death and its return.

The job continues if an older snapshot will do; otherwise it ends, and says what is damaged. What is
left for it then is the newest checkpoint that is not damaged; hvdft run names it.
"""

import re
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, Ended, RunHvdft

from hvd_ft.checkpoint.catalogue import find

DAMAGE = [sys.executable, "-W", "ignore", str(SCRIPTS / "damage_script.py")]
HEADER = 4096  # of a rank's file; its snapshots are behind it
MESSAGES = 1 << 37  # in the log of a pair: heads are before it
REMEDY = "start the job again, from its last checkpoint if it has one"
pytestmark = pytest.mark.timeout(150)


def damaged(run_hvdft: RunHvdft, what: str, script: list[str], *flags: str) -> Ended:
    """A job whose rank 1 dies, whereupon a file is damaged."""
    # Undamaged it would wait for ever.
    env = {"HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS": "60"}
    ended = run_hvdft(["run", "-np", "2", *flags, *DAMAGE, what, *script], env=env)
    assert ended.code == (2 if what.endswith("agent") else 1), ended
    assert "died (signal 9, SIGKILL)" in ended.err
    return ended


def of_training(run_hvdft: RunHvdft, folder: Path, what: str) -> Ended:
    script = [str(SCRIPTS / "checkpoint_script.py")]
    flags = ["--inject", "rank=1,step=10", "--checkpoint-dir", str(folder)]
    return damaged(run_hvdft, what, script, *flags)


@pytest.mark.shows(later=True)
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("truncate rank-1.arena end", r"rank-1\.arena is damaged: it has \d+ of its \d+ bytes"),
        ("flip rank-1.arena head", r"rank-1\.arena is damaged: its header does not match its"),
        ("flip node.arena head", r"node\.arena is damaged: its header does not match its"),
        (
            "flip node.arena text:ALLREDUCE",
            r"node\.arena is damaged: the op log's record of op \d+ is not as written",
        ),
        (
            "flip node.arena text:ALLREDUCE agent",
            r"node\.arena is damaged: the op log's record of op \d+ is not as written",
        ),
    ],
)
def test_a_damaged_arena(run_hvdft: RunHvdft, tmp_path: Path, what: str, said: str) -> None:
    """The snapshots are whole, so the job leaves its latest state."""
    ended = of_training(run_hvdft, tmp_path, what)
    assert re.search(f"hvdft: (?:arena )?/.*/{said}.*; {REMEDY}$", ended.err, re.M), ended.err
    [left] = find(tmp_path)
    assert (
        f"--resume {tmp_path} continues from step 8 of training loop 0 ({left.name})" in ended.err
    )


@pytest.mark.shows(later=True)
def test_a_damaged_snapshot(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """Neither a worker nor a checkpoint continues from it."""
    ended = of_training(run_hvdft, tmp_path, f"flip rank-1.arena behind:{HEADER}")
    for said in (
        f"rank 1: the snapshot of training loop 0 cannot be used: .* damaged; .*; {REMEDY}",
        "the snapshot of training loop 0 of rank 1 cannot be used: .* an older one is looked for",
    ):
        assert re.search(f"^hvdft: {said}", ended.err, re.M), ended.err
    assert not find(tmp_path)


def test_the_state_before_a_damaged_snapshot_is_kept(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """The log does not reach back to it, but a checkpoint needs no log."""
    ended = of_training(run_hvdft, tmp_path, "flip rank-1.arena newest")
    assert re.search(f"cannot be used: .* damaged; .*; {REMEDY}", ended.err), ended.err
    [left] = find(tmp_path)
    assert (
        f"--resume {tmp_path} continues from step 4 of training loop 0 ({left.name})" in ended.err
    )


def results(ended: Ended) -> list[str]:
    assert ended.code == 0, ended.err
    return sorted(line for line in ended.out.splitlines() if line.startswith("RESULT"))


_undisturbed: dict[str, list[str]] = {}  # by units


def undisturbed(run_hvdft: RunHvdft, units: str) -> list[str]:
    if units not in _undisturbed:
        train = [sys.executable, "-W", "ignore", str(SCRIPTS / "checkpoint_script.py")]
        _undisturbed[units] = results(run_hvdft(["run", "-np", "2", *train], env={"UNITS": units}))
    return _undisturbed[units]


@pytest.mark.timeout(400)  # two jobs of three trainings each, beside other work
@pytest.mark.parametrize(
    ("units", "step", "back_to"),
    [("8", 8, "the one before"), ("500", 8, "the one before"), ("8", 4, "the loop's beginning")],
    ids=["alone", "shared", "first"],
)
def test_a_damaged_snapshot_that_was_not_published(
    run_hvdft: RunHvdft, units: str, step: int, back_to: str
) -> None:
    """The rank died before it had published it, so the log reaches back to the one before."""
    kill = ["--inject", f"rank=1,step={step},point=snapshot_delivered"]
    script = str(SCRIPTS / "checkpoint_script.py")
    job = ["run", "-np", "2", *kill, *DAMAGE, "flip rank-1.arena newest", script]
    ended = run_hvdft(job, env={"UNITS": units})
    assert results(ended) == undisturbed(run_hvdft, units)
    said = f"hvdft: rank 1 goes back to {back_to}: its latest snapshot of training loop 0 cannot be"
    assert re.search(f"^{said} used: .* damaged$", ended.err, re.M), ended.err


@pytest.mark.shows
@pytest.mark.parametrize(
    ("what", "said"),
    [
        # Rank 0 may send another message meanwhile, with which the file ends where it did.
        (f"truncate messages-0-1.log {MESSAGES}", r"it has \d+ of its|the data of message"),
        ("flip messages-0-1.log behind:12288", "the head of message"),
        (f"flip messages-0-1.log behind:{MESSAGES}", "the data of message"),
    ],
    ids=["truncated", "head", "data"],
)
def test_a_damaged_log_of_messages(run_hvdft: RunHvdft, what: str, said: str) -> None:
    script = [str(SCRIPTS / "p2p_script.py"), "loop"]
    ended = damaged(run_hvdft, what, script, "--inject", "rank=1,step=7")
    assert re.search(rf"messages-0-1\.log is damaged: ({said}) .*; {REMEDY}", ended.err), ended.err
