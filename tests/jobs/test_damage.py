"""Damage to a job's files between a worker's death and its return: the job ends, and says which.

What is left for it is the newest checkpoint that is not damaged; hvdft run names it.
"""

import re
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, Ended, RunHvdft

from hvd_ft.checkpoint.catalogue import find

DAMAGE = [sys.executable, "-W", "ignore", str(SCRIPTS / "damage_script.py")]
INPUT_AREA = 4096 + (1 << 20)  # of a rank's file; its snapshots are behind it
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
    assert f"--resume {tmp_path} goes on from step 8 of training loop 0 ({left.name})" in ended.err


def test_a_damaged_snapshot(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """Neither a worker nor a checkpoint goes on from it."""
    ended = of_training(run_hvdft, tmp_path, f"flip rank-1.arena behind:{INPUT_AREA}")
    for said in (
        f"rank 1: the snapshot of training loop 0 cannot be used: .* damaged; {REMEDY}",
        "the snapshot of training loop 0 of rank 1 cannot be used: .* an older one is looked for",
    ):
        assert re.search(f"^hvdft: {said}", ended.err, re.M), ended.err
    assert not find(tmp_path)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("flip messages-0-1.log behind:12288", "the head of message"),
        (f"flip messages-0-1.log behind:{MESSAGES}", "the data of message"),
        # Rank 0 may send another message meanwhile, with which the file ends where it did.
        (f"truncate messages-0-1.log {MESSAGES}", r"it has \d+ of its|the data of message"),
    ],
    ids=["head", "data", "truncated"],
)
def test_a_damaged_log_of_messages(run_hvdft: RunHvdft, what: str, said: str) -> None:
    script = [str(SCRIPTS / "p2p_script.py"), "loop"]
    ended = damaged(run_hvdft, what, script, "--inject", "rank=1,step=7")
    assert re.search(rf"messages-0-1\.log is damaged: ({said}) .*; {REMEDY}", ended.err), ended.err
