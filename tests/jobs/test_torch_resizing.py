"""Jobs with PyTorch continue with another number of ranks, and from checkpoints on a disk."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from conftest import SCRIPTS, Cluster, Ended, RunHvdft, running_cluster
from safetensors.torch import load_file
from test_in_place import InPlace
from test_in_place_data import leaves_and_returns
from test_network import disturb
from test_resizing_jobs import ends, start

from hvd_ft.checkpoint.catalogue import find

SAMPLES, EPOCHS = 50, 3
STYLES = ("ddp", "loop")
PYTHON = [sys.executable, "-W", "ignore"]
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
@pytest.mark.parametrize("style", STYLES)
def test_each_remaining_sample_is_dealt_to_another_number_of_ranks(
    run_hvdft: RunHvdft, tmp_path: Path, style: str
) -> None:
    """From two to three, in the middle of an epoch; the checkpoint is a state_dict, too."""
    folder = tmp_path / "c"

    def part(ranks: int, *flags: str, drills: Sequence[str] = ()) -> Ended:
        inject = [word for drill in drills for word in ("--inject", drill)]
        keep = ["--checkpoint-dir", str(folder), "--checkpoint-keep", "9"]
        script = [sys.executable, str(SCRIPTS / SCRIPT), style]
        return run_hvdft(
            ["run", "-np", str(ranks), *keep, *flags, *inject, *script],
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
    with running_cluster("-n", "3") as cluster:
        yield cluster


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("style", STYLES)
def test_ranks_leave_and_return(nodes: Cluster, tmp_path: Path, style: str) -> None:
    out, _ = leaves_and_returns(nodes, tmp_path, [SCRIPT, style], 5, 9)
    check_ends(out, 3)


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("style", STYLES)
def test_the_ranks_of_a_lost_host_leave_a_running_job(
    nodes: Cluster, tmp_path: Path, style: str
) -> None:
    """The processes that stay average the gradients of three ranks from a step on."""
    hosts = ["-np", "4", "-H", "n0:2,n1:1,n2:1", "--min-np", "2"]
    work = ([*PYTHON, str(SCRIPTS / SCRIPT), style], 5, 9)
    job = InPlace(nodes, tmp_path, *hosts, work=work)
    disturb(nodes, "kill", node="n1")
    job.running.await_line("host n1 is lost; its rank 2 continues on n2 until it leaves the job")
    out, err = job.end()
    (left,) = re.findall(r"from step (\d+) on the job has 3 ranks instead of 4", err)
    assert int(left) in (6, 7)
    assert not re.search(r"rank \d+ died", err)  # who stays was not started again
    check_ends(out, 3)


@pytest.mark.long
@pytest.mark.parametrize("style", STYLES)
def test_a_lost_hosts_samples_are_dealt_to_the_others(
    nodes: Cluster, tmp_path: Path, style: str
) -> None:
    """As in a job that is resumed with so many ranks from the same checkpoint."""
    work = [*PYTHON, str(SCRIPTS / SCRIPT), style]
    awaited, folder = tmp_path / "awaited", tmp_path / "c"
    keep = ["--checkpoint-dir", str(folder), "--checkpoint-keep", "9"]
    hosts = ["-np", "4", "-H", "n0:2,n1:1,n2:1", "--min-np", "2"]
    env = {"EVERY": "2", "AWAIT": str(awaited)}
    running = start(nodes, *hosts, *keep, work=work, env=env)
    running.await_line("waiting for the test after 5 steps")
    disturb(nodes, "kill", node="n1")
    running.await_line("the job continues with 3 ranks on n0:2,n2:1")
    awaited.touch()
    code, out, err = running.end()
    assert code == 0, err
    check_ends(out, 3)
    (path,) = [each.path for each in find(folder) if each.state == "without rank 2"]
    again = ["-np", "3", "-H", "n0:2,n2:1", "--resume", str(path)]
    code, other, err = start(nodes, *again, work=work, env={"EVERY": "2"}).end()
    assert code == 0, err
    assert ends(other) == ends(out)
