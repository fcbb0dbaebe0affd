"""torch.distributed on the backend hvd_ft: Gloo's results, and DDP jobs whose ranks are killed."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft

COLLECTIVES = str(SCRIPTS / "torch_collectives_script.py")
DDP = str(SCRIPTS / "torch_ddp_script.py")
pytestmark = pytest.mark.timeout(600)
# Two deaths of one rank and one of the other; each step has some five ops.
DRILLS = ("rank=0,op=25", "rank=1,op=40", "rank=1,incarnation=1,point=replay")

Results = dict[int, tuple[int, str, str]]


def run(run_hvdft: RunHvdft, ranks: int, words: Sequence[str], drills: Sequence[str]) -> str:
    inject = [word for drill in drills for word in ("--inject", drill)]
    python = [sys.executable, "-W", "ignore"]
    ended = run_hvdft(["run", "-np", str(ranks), *inject, *python, *words])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(drills), ended.err
    return ended.out + ended.err


def train(
    run_hvdft: RunHvdft, style: str, mode: str, drills: Sequence[str] = (), ranks: int = 2
) -> Results:
    """Returns each rank's incarnation, and digests of the weights and of its own generator."""
    out = run(run_hvdft, ranks, [DDP, style, mode], drills)
    assert out.count("takes no snapshots") == (mode == "none")
    lines = re.findall(r"^RESULT (\d) (\d) (\S+) (\S+)$", out, re.MULTILINE)
    found = {int(rank): (int(incarnation), *rest) for rank, incarnation, *rest in lines}
    assert sorted(found) == list(range(ranks)), out
    assert len({weights for _, weights, _ in found.values()}) == 1, out
    return found


def check(run_hvdft: RunHvdft, style: str, mode: str, ranks: int = 2) -> None:
    whole = train(run_hvdft, style, mode, ranks=ranks)
    killed = train(run_hvdft, style, mode, DRILLS, ranks)
    assert [killed[rank][0] for rank in range(ranks)] == [1, 2, 0][:ranks]
    assert [killed[rank][1:] for rank in killed] == [whole[rank][1:] for rank in killed]


@pytest.mark.shows
def test_killed_ranks_of_a_ddp_job_end_as_undisturbed_ones(run_hvdft: RunHvdft) -> None:
    check(run_hvdft, "plain", "snapshots")


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("style", ["plain"])
def test_killed_ranks_without_snapshots_do_so_too(run_hvdft: RunHvdft, style: str) -> None:
    check(run_hvdft, style, "none")


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("style", ["unused", "views", "hook", "accumulate"])
def test_killed_ranks_do_so_with_each_feature_of_ddp(run_hvdft: RunHvdft, style: str) -> None:
    check(run_hvdft, style, "snapshots")


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("style", ["static", "static+views+kept+hook"])
def test_killed_ranks_with_a_static_graph_do_so_too(run_hvdft: RunHvdft, style: str) -> None:
    """The parts that a rank uses are not those that another one uses."""
    check(run_hvdft, style, "snapshots")


@pytest.mark.long
def test_a_static_graph_without_an_exchange_in_each_pass_has_no_snapshots(
    run_hvdft: RunHvdft,
) -> None:
    words = [sys.executable, DDP, "static+accumulate", "snapshots"]
    ended = run_hvdft(["run", "-np", "2", *words], env={"HOROVOD_FT_MAX_FAILURES": "1"})
    assert ended.code != 0
    refused = (
        "DistributedDataParallel(static_graph=True) cannot continue from snapshots with no_sync()"
    )
    assert refused in ended.err


@pytest.mark.long
@pytest.mark.parametrize("style", ["views+kept", "static+views+kept"])
def test_gradients_that_are_views_of_buckets_are_again(run_hvdft: RunHvdft, style: str) -> None:
    """A third is not what multiplying by the third of 1 gives: what is a view is divided."""
    check(run_hvdft, style, "snapshots", ranks=3)


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("drills", [(), ("rank=0,op=60", "rank=2,op=150")], ids=["whole", "killed"])
def test_collectives_give_what_gloo_gives(
    run_hvdft: RunHvdft, tmp_path: Path, drills: Sequence[str]
) -> None:
    """In the group of all three ranks, and in one of two of them."""
    out = run(run_hvdft, 3, [COLLECTIVES, str(tmp_path)], drills)
    assert "DIFFERS" not in out
    numbers = [int(number) for number in re.findall(r"^COMPARED \d (\d+)$", out, re.MULTILINE)]
    assert sorted(numbers) == [min(numbers), 2 * min(numbers), 2 * min(numbers)], out
    assert min(numbers) > 80
