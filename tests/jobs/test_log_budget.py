"""The op log keeps within its budget of memory, whatever the budget of time says."""

import sys
from pathlib import Path

from conftest import RunHvdft

from hvd_ft.reports.report import read_report

SCRIPT = """\
import tensorflow as tf
import hvd_ft.tensorflow as hvd

hvd.init()
state = hvd.State(variables=[tf.Variable(0.0)], snapshot_overhead=1e-6)
gradient = tf.ones([24 << 20])
state.sync()
while state.batch < 24:
    hvd.allreduce(gradient, name="gradient")
    state.batch += 1
    state.commit()
state.finish()
"""
STEP_BYTES = 4 * 24 << 20


def test_the_log_holds_the_results_of_a_few_steps(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script, report = tmp_path / "script.py", tmp_path / "report.jsonl"
    script.write_text(SCRIPT)
    ended = run_hvdft(
        ["run", "-np", "2", "--report", str(report), sys.executable, str(script)],
        env={"HOROVOD_FT_LOG_STEPS": "4", "HOROVOD_FT_ARENA_BYTES": "8G"},
    )
    assert ended.code == 0, ended.err
    facts = read_report(report).facts
    assert facts["ranks"][0]["snapshots"]["steps"] == 4
    # The budget's 4 steps, the one under way, and those that are done while the snapshot is taken:
    # as many as it lasts in a script that computes nothing. By time there would be one snapshot
    # after 3 steps and another at the end, so the log would have 20 steps.
    assert facts["used_bytes_peak"] < 2 * 4 * STEP_BYTES
