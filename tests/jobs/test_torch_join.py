"""DistributedDataParallel on ranks with unequal data (`join`, `Join`), whose ranks are killed."""

import re
import sys

import pytest
from conftest import SCRIPTS, RunHvdft

SCRIPT = str(SCRIPTS / "torch_join_script.py")
pytestmark = pytest.mark.timeout(600)

Results = dict[int, tuple[int, str, str]]


def train(run_hvdft: RunHvdft, divide: str, mode: str, deaths: str) -> Results:
    """Returns each rank's incarnation, and digests of the weights and of its own generator."""
    python = [sys.executable, "-W", "ignore"]
    ended = run_hvdft(["run", "-np", "3", "--no-live", *python, SCRIPT, divide, mode, deaths])
    assert ended.code == 0, ended.err
    assert ended.out.count("DIES") == (0 if deaths == "-" else len(deaths.split(",")))
    lines = re.findall(r"^RESULT (\d) (\d) (\S+) (\S+)$", ended.out, re.MULTILINE)
    found = {int(rank): (int(incarnation), *rest) for rank, incarnation, *rest in lines}
    assert sorted(found) == [0, 1, 2], ended.out
    assert len({weights for _, weights, _ in found.values()}) == 1
    return found


def check(run_hvdft: RunHvdft, divide: str, mode: str) -> Results:
    whole = train(run_hvdft, divide, mode, "-")
    killed = train(run_hvdft, divide, mode, "joined,training")
    assert [killed[rank][0] for rank in range(3)] == [1, 1, 0]
    assert [killed[rank][1:] for rank in range(3)] == [whole[rank][1:] for rank in range(3)]
    return whole


@pytest.mark.shows(later=True)
def test_a_joined_rank_and_a_training_one_are_killed(run_hvdft: RunHvdft) -> None:
    """The reducer divides by the ranks that train: it asks each operation for its result."""
    check(run_hvdft, "training", "snapshots")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["snapshots", "none"])
def test_both_divisors_differ_and_stand_kills(run_hvdft: RunHvdft, mode: str) -> None:
    weights = {check(run_hvdft, divide, mode)[0][1] for divide in ("initial", "training")}
    assert len(weights) == 2
