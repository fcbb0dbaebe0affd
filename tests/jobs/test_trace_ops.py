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


def found_in(report: Path, kind: str, rank: int) -> list[int]:
    """Returns the ops that a report's lines of a kind have of a rank."""
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    its = [line for line in lines if line.get("type") == kind and line["rank"] == rank]
    return sorted(op[0] for line in its for op in line["ops"])


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
    ops, in_ring = (found_in(report, kind, 0) for kind in ("OPS", "RING"))
    assert len(ops) >= 20 and found_in(report, "OPS", 1) == ops
    assert found_in(report, "RING", 1) == in_ring and len(in_ring) == len({*in_ring})
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


@pytest.mark.long
def test_new_agents_go_on_with_what_the_others_had_not_traced(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    """All ops of the job are kept, so none is missing, whenever the agents died."""
    (tmp_path / "script.py").write_text(SCRIPT)
    report = tmp_path / "run.jsonl"
    flags = ["--trace-ops", "--report", str(report), "--topology", "flat"]
    drills = ["--inject", "agent=1,op=10", "--inject", "rank=0,op=15"]
    script = [sys.executable, str(tmp_path / "script.py")]
    ended = run_hvdft(["run", "-np", "2", *flags, *drills, *script])
    assert ended.code == 0, ended.err
    assert "starting generation 1" in ended.err
    ops = [{*found_in(report, "OPS", rank)} for rank in range(2)]
    assert ops[0] == ops[1] and len(ops[0]) >= 20
    in_ring = [{*found_in(report, "RING", rank)} for rank in range(2)]
    assert in_ring[0] == in_ring[1] and len(in_ring[0]) >= 20
