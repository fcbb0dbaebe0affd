"""A job with --trace-ops has its single ops in the report and the trace."""

import json
import sys
from pathlib import Path

import pytest
from conftest import RunHvdft

from hvd_ft.reports.trace import OPS, RING

SCRIPT = """\
import tensorflow as tf
import hvd_ft.tensorflow as hvd

hvd.init()
for i in range(20):
    hvd.allreduce(tf.ones(1000), name=f"x{i}")
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_single_ops_are_in_the_report_and_its_trace(
    run_hvdft: RunHvdft, tmp_path: Path, nodes: int
) -> None:
    """In the flat topology every rank is a node, and a member of the ring."""
    (tmp_path / "script.py").write_text(SCRIPT)
    report = tmp_path / "run.jsonl"
    flags = ["--trace-ops", "--report", str(report), *(["--topology", "flat"] * (nodes > 1))]
    ended = run_hvdft(["run", "-np", "2", *flags, sys.executable, str(tmp_path / "script.py")])
    assert ended.code == 0, ended.err
    assert "--trace-ops" not in ended.err, "fewer ops than are kept"
    lines = [json.loads(line) for line in report.read_text().splitlines()]

    def found(kind: str, rank: int) -> list[int]:
        return sorted(
            op[0]
            for line in lines
            if line.get("type") == kind and line["rank"] == rank
            for op in line["ops"]
        )

    ops, in_ring = found("OPS", 0), found("RING", 0)
    assert len(ops) >= 20 and found("OPS", 1) == ops
    assert found("RING", 1) == in_ring and len(in_ring) == len({*in_ring})
    assert (len(in_ring) >= 20) == (nodes > 1) and {*in_ring} <= {*ops}
    shown = run_hvdft(["report", str(report), "--trace"])
    assert shown.code == 0, shown.err
    entries = json.loads((tmp_path / "run.trace.json").read_text())["traceEvents"]
    for rank in range(2):
        begins = [
            entry
            for entry in entries
            if entry["pid"] == rank + 1 and entry["ph"] == "B" and "op" in entry["args"]
            and "op " in entry["name"]
        ]  # fmt: skip
        drawn = {entry["args"]["op"] for entry in begins if entry["tid"] >= OPS}
        assert drawn == {*ops}
        assert {entry["args"]["op"] for entry in begins if entry["tid"] == RING} == {*in_ring}
