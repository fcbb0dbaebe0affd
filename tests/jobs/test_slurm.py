"""Jobs under a real Slurm: its allocation is used, and agents may die under both proctracks.

`make slurm` runs all of it; the long ones are left out of `make test`.
"""

import re
import sys
from collections.abc import Iterator

import pytest
from slurm_cluster import Slurm, running_slurm, shell
from test_generations import SUMS

RUN = [sys.executable, "-m", "hvd_ft.cli", "run", "--no-live"]
OPS, MEGABYTE = "60", "1000000"
pytestmark = [pytest.mark.timeout(600), pytest.mark.job]


@pytest.fixture(scope="module", params=["linuxproc", "cgroup"])
def slurm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    with running_slurm(folder, request.param) as running:
        yield running


def expect_sums(text: str, ranks: int, incarnations: set[str]) -> None:
    found = re.findall(r"SUMS (\d+) (\d+) (\w+)", text)
    assert sorted(int(rank) for rank, _, _ in found) == list(range(ranks)), text
    assert {incarnation for _, incarnation, _ in found} == incarnations, text
    assert len({digest for _, _, digest in found}) == 1, text


def test_an_agent_dies_and_its_worker_lives_on(slurm: Slurm) -> None:
    job = shell(*RUN, "--inject", "agent=1,op=31", *SUMS, OPS, MEGABYTE, "5")
    code, output = slurm.submit(f"exec {job}", "-N2", "-n3")
    text = output.read_text()
    assert code == 0, text
    assert ": 3 ranks on n0:2,n1:1" in text
    assert "started by slurm" in text
    assert text.count("; starting generation") == 1, text
    expect_sums(text, 3, {"0"})
