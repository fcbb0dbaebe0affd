"""A job in which one rank becomes slow by a drill, and is named."""

import json
import sys
from pathlib import Path
from typing import Any

from conftest import RunHvdft

EVEN_STEPS = 600  # of 40 ms or more: longer than the rule looks back


def named(run_hvdft: RunHvdft, report: Path, script: str, rank: int) -> tuple[dict[str, Any], str]:
    """Runs a job of three ranks until one is named as slow.

    Args:
        run_hvdft: the fixture.
        report: the job's.
        script: of the ranks; ends when the report names a slow rank.
        rank: that becomes slow.

    Returns:
        The report's only line about a slow rank, which is about this one and later than the drill;
        and what `hvdft run` has said.
    """
    drill = f"rank={rank},step={EVEN_STEPS},slow=1.6"
    job = ["run", "-np", "3", "--report", str(report), "--inject", drill]
    words = [sys.executable, script, "--until", str(report), "--steps", "6000"]
    ended = run_hvdft([*job, *words])
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    (found,) = [line for line in lines if line.get("type") == "SLOW"]
    assert found["ranks"] == [rank] and not found["ended"] and found["wait"] > 0.1
    assert ended.err.index(f"drill: {drill}") < ended.err.index(f"rank {rank} on")
    return found, ended.err
