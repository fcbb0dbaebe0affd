"""Large ops between nodes whose edges have several connections, through deaths of agents."""

import re
import sys

import pytest
from conftest import SCRIPTS, RunHvdft

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
