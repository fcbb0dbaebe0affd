"""Horovod's timeline distinguishes slow ops, waits for a dead rank, and replay."""

import sys
from pathlib import Path

import pytest
from conftest import RunHvdft

SCRIPT = """\
import tensorflow as tf
import hvd_ft.tensorflow as hvd

hvd.init()
for i in range(20):
    hvd.allreduce(tf.ones(1000), name=f"x{i}")
"""


@pytest.mark.shows
def test_waits_and_replays_are_in_the_timeline(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    timeline = tmp_path / "timeline.json"
    drills = ["--inject", "rank=0,op=5", "--inject", "rank=1,op=15,point=copy_in"]
    ended = run_hvdft(
        ["run", "-np", "2", *drills, sys.executable, str(tmp_path / "script.py")],
        env={"HOROVOD_TIMELINE": str(timeline)},
    )
    assert ended.code == 0, ended.err
    first = timeline.read_text()
    assert "FT_ALLREDUCE" in first and "FT_REPLAY" not in first
    told = timeline.with_suffix(".1.json").read_text()  # of rank 0's second incarnation
    # The log had ops 0 to 5, one of which numbers the requests: in eager code they are alike.
    assert told.count("FT_REPLAY") == 5
    # Op 15 waits for rank 1. The next one may as well: it is not back before it has seen that the
    # log has no more for it.
    assert told.count("FT_WAIT_PEER") in {1, 2}
    assert told.count("FT_ALLREDUCE") >= 12, "of 14: at the end some are lost in Horovod's writer"
