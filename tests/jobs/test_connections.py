"""Large ops between nodes whose edges have several connections, through deaths of agents."""

import re
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft

from hvd_ft.reports.report import read_report

SUMS = [sys.executable, str(SCRIPTS / "sums_script.py"), "8", "8000000"]


@pytest.mark.parametrize("nodes", [pytest.param(2, marks=pytest.mark.shows), 3])
def test_agents_die_in_large_ops(run_hvdft: RunHvdft, nodes: int) -> None:
    settings = {"HOROVOD_FT_ENDPOINTS": "3", "HOROVOD_FT_CONNECTIONS": "3"}
    inject = ["--inject", "agent=1,op=3,point=contribute"]
    flags = ["run", "--no-live", "-np", str(nodes), "--topology", "flat", *inject]
    ended = run_hvdft([*flags, *SUMS], env=settings)
    assert ended.code == 0, ended
    assert len(re.findall(r"SUMS \d 0 \w+", ended.out)) == nodes
    assert ended.err.count("; starting generation") == 1
    # Two edges of three connections, the mirror, gathered ops.
    assert "8 endpoints in use, MPI has 12" in ended.err, ended.err


def test_a_provider_without_endpoints_is_said(run_hvdft: RunHvdft) -> None:
    """On one host it is not used, so that a job can show it."""
    settings = {"FI_PROVIDER": "mlx", "HOROVOD_FT_ENDPOINTS": "3", "HOROVOD_FT_CONNECTIONS": "3"}
    flags = ["run", "--no-live", "-np", "2", "--topology", "flat"]
    ended = run_hvdft([*flags, *SUMS], env=settings)
    assert ended.code == 0, ended
    why = "1 endpoint in use (the provider mlx of FI_PROVIDER has none for threads)"
    assert why in ended.err, ended.err


def test_one_endpoint_has_one_connection(run_hvdft: RunHvdft) -> None:
    settings = {"HOROVOD_FT_ENDPOINTS": "1", "HOROVOD_FT_CONNECTIONS": "3"}
    flags = ["run", "--no-live", "-np", "2", "--topology", "flat"]
    ended = run_hvdft([*flags, *SUMS], env=settings)
    assert ended.code == 0, ended
    assert "1 endpoint in use, MPI has 12 (HOROVOD_FT_ENDPOINTS is 1)" in ended.err, ended.err


@pytest.mark.parametrize("transfers", [pytest.param(1, marks=pytest.mark.shows), 16])
def test_the_ring_has_a_thread_and_the_mirror_another(run_hvdft: RunHvdft, transfers: int) -> None:
    settings = {"HOROVOD_FT_ENDPOINTS": "2", "HOROVOD_FT_TRANSFERS": str(transfers)}
    inject = ["--inject", "agent=2,op=3,point=contribute"]
    flags = ["run", "--no-live", "-np", "3", "--topology", "flat", *inject]
    ended = run_hvdft([*flags, *SUMS], env=settings)
    assert ended.code == 0, ended
    assert len(re.findall(r"SUMS \d 0 \w+", ended.out)) == 3
    assert ended.err.count("; starting generation") == 1
    assert "2 endpoints in use, MPI has 6 (HOROVOD_FT_ENDPOINTS is 2)" in ended.err, ended.err


@pytest.mark.parametrize("segment", [pytest.param("16K", marks=pytest.mark.shows), "512K"])
def test_segments_within_a_node_have_any_size(run_hvdft: RunHvdft, segment: str) -> None:
    """And a rank that has died in the middle of one comes back."""
    settings = {"HOROVOD_FT_NODE_SEGMENT_BYTES": segment}
    inject = ["--inject", "rank=1,op=3,point=copy_in", "--inject", "rank=0,op=5,point=reduce"]
    ended = run_hvdft(["run", "--no-live", "-np", "3", *inject, *SUMS], env=settings)
    assert ended.code == 0, ended
    assert len(re.findall(r"SUMS \d [01] \w+", ended.out)) == 3
    # Rank 0 dies only if the others leave it a segment to sum.
    assert ended.err.count("; restarting as incarnation 1") in (1, 2), ended.err


@pytest.mark.parametrize(
    ("window", "kib"), [pytest.param("256K", 256, marks=pytest.mark.shows), ("4M", 4096)]
)
def test_windows_within_a_node_have_any_size(
    run_hvdft: RunHvdft, tmp_path: Path, window: str, kib: int
) -> None:
    """And all is as with the usual one, through the deaths of two ranks."""
    report, hashes = tmp_path / "run.jsonl", set()
    inject = ["--inject", "rank=1,op=3,point=copy_in", "--inject", "rank=0,op=5,point=reduce"]
    for value, size, drill in ((window, kib << 10, inject), ("", 1 << 20, [])):
        flags = ["run", "--no-live", "-np", "3", "--report", str(report), *drill]
        ended = run_hvdft([*flags, *SUMS], env={"HOROVOD_FT_NODE_WINDOW_BYTES": value})
        assert ended.code == 0, ended
        found = re.findall(r"SUMS \d [01] (\w+)", ended.out)
        assert len(found) == 3
        hashes |= set(found)
        assert ended.err.count("; restarting as incarnation 1") in range(bool(drill), 3), ended.err
        assert read_report(report).facts["nodes"][0]["most"]["input_areas"] == 3 * size
        report.unlink()
    assert len(hashes) == 1
