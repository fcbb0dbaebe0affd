"""A job with --trace-ops has its single ops in the report and the trace."""

import json
import sys
from pathlib import Path

from conftest import RunHvdft

SCRIPT = """\
import tensorflow as tf
import hvd_ft.tensorflow as hvd

hvd.init()
for i in range(20):
    hvd.allreduce(tf.ones(1000), name=f"x{i}")
"""


def test_single_ops_are_in_the_report_and_its_trace(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    report = tmp_path / "run.jsonl"
    script = [sys.executable, str(tmp_path / "script.py")]
    ended = run_hvdft(["run", "-np", "2", "--trace-ops", "--report", str(report), *script])
    assert ended.code == 0, ended.err
    assert "--trace-ops" not in ended.err, "fewer ops than are kept"
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    found = {
        rank: [op[0] for line in lines if line.get("type") == "OPS" and line["rank"] == rank
               for op in line["ops"]]
        for rank in range(2)
    }  # fmt: skip
    assert found[0] == sorted(set(found[0])) and len(found[0]) >= 20
    assert found[1] == found[0]
    shown = run_hvdft(["report", str(report), "--trace"])
    assert shown.code == 0, shown.err
    entries = json.loads((tmp_path / "run.trace.json").read_text())["traceEvents"]
    for rank in range(2):
        drawn = {
            entry["args"]["op"]
            for entry in entries
            if entry["pid"] == rank + 1 and entry["ph"] == "B" and "op" in entry["args"]
            and "op " in entry["name"]
        }  # fmt: skip
        assert drawn == {*found[rank]}
