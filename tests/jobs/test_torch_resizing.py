"""Jobs with PyTorch go on with another number of ranks, and from checkpoints on a disk."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from conftest import SCRIPTS, Cluster, Ended, RunHvdft, running_cluster
from safetensors.torch import load_file
from test_in_place_data import leaves_and_returns

from hvd_ft.checkpoint.catalogue import find

SAMPLES, EPOCHS = 50, 3
SCRIPT = "torch_sampler_script.py"
pytestmark = pytest.mark.timeout(600)


def check_ends(out: str, ranks: int) -> None:
    """Ranks have trained with each sample once an epoch; at its end some samples come twice."""
    lines = sorted(line.split(maxsplit=4) for line in out.splitlines() if line.startswith("END"))
    assert [line[:4] for line in lines] == [
        ["END", str(rank), "of", str(ranks)] for rank in range(ranks)
    ]
    (same,) = {line[4] for line in lines}
    counts = json.loads(same.split()[1])
    assert min(counts) == EPOCHS
    assert sum(counts) - EPOCHS * SAMPLES < 3 * EPOCHS


@pytest.mark.shows(later=True)
def test_each_remaining_sample_is_dealt_to_another_number_of_ranks(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    """From two to three, in the middle of an epoch; the checkpoint is a state_dict, too."""
    folder = tmp_path / "c"

    def part(ranks: int, *flags: str, drills: Sequence[str] = ()) -> Ended:
        inject = [word for drill in drills for word in ("--inject", drill)]
        keep = ["--checkpoint-dir", str(folder), "--checkpoint-keep", "9"]
        return run_hvdft(
            ["run", "-np", str(ranks), *keep, *flags, *inject, sys.executable, SCRIPTS / SCRIPT],
            env={"EVERY": "4", "HOROVOD_FT_MAX_FAILURES": "1"},
        )

    lost = part(2, drills=["rank=1,step=10", "rank=1,step=10,incarnation=1"])
    assert lost.code != 0
    (first, *_) = [each.manifest for each in find(folder) if each.manifest]
    assert (first.size, first.step % 4) == (2, 0)
    weights = tmp_path / "weights.safetensors"
    export = ["checkpoint", "export", str(folder), "--only", "model", "--output", str(weights)]
    ended = run_hvdft(export)
    assert ended.code == 0, ended.err
    names = ["inner.0.weight", "inner.0.bias", "inner.1.weight", "inner.1.bias", "counts", "steps"]
    tensors = load_file(weights)
    assert sorted(tensors) == sorted(names)
    assert int(tensors["steps"]) in (4, 8)
    assert tensors["inner.0.weight"].dtype is torch.float32
    assert run_hvdft([*export[:-3], "nothing", *export[-2:]]).code == 2
    ended = part(3, "--resume", str(folder))
    assert ended.code == 0, ended.err
    check_ends(ended.out, 3)


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster("-n", "2") as cluster:
        yield cluster


@pytest.mark.shows(later=True)
def test_ranks_leave_and_return(nodes: Cluster, tmp_path: Path) -> None:
    out, _ = leaves_and_returns(nodes, tmp_path, [SCRIPT], 5, 9)
    check_ends(out, 3)
