"""Ranks leave a running job and return to it, and the samples of a data set are dealt out anew."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, running_cluster
from test_in_place import InPlace
from test_resizing_jobs import ends

SAMPLES, EPOCHS = 150, 3


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with running_cluster("-n", "2") as cluster:
        yield cluster


def leaves_and_returns(
    nodes: Cluster, folder: Path, work: list[str], leaves: int, returns: int
) -> tuple[str, str]:
    """Runs a script that waits after so many steps; rank 2 of 3 leaves, and returns."""
    file = folder / "hosts"
    file.write_text("n0:2\nn1:1\n")
    script = [sys.executable, "-W", "ignore", str(SCRIPTS / work[0]), *work[1:]]
    hosts = ["-np", "3", "--host-discovery-script", f"cat {file}", "--min-np", "2"]
    job = InPlace(nodes, folder, *hosts, returns=True, work=(script, leaves, returns))
    file.write_text("n0:2\n")
    job.running.await_line("the hosts have changed (n1 less); starting generation 1")
    job.shrink()
    file.write_text("n0:2\nn1:1\n")
    job.running.await_line("rank 2 is back, and waits for the next step boundary")
    out, err = job.end()
    assert "died" not in err
    (left,) = re.findall(r"from step (\d+) on the job has 2 ranks instead of 3", err)
    (back,) = re.findall(r"from step (\d+) on the job has 3 ranks instead of 2", err)
    assert leaves < int(left) <= leaves + 2 and returns < int(back) <= returns + 2
    return out, err


@pytest.mark.parametrize("style", ["fit", "state", "draws"])
def test_what_is_left_is_dealt_to_the_ranks_that_there_are(
    nodes: Cluster, tmp_path: Path, style: str
) -> None:
    out, err = leaves_and_returns(nodes, tmp_path, ["sampler_script.py", style], 13, 20)
    lines = [line.split(maxsplit=3) for line in ends(out)]
    assert [line[:3] for line in lines] == [["END", str(rank), "of"] for rank in range(3)], err
    (same,) = {line[3] for line in lines}
    size, *_, counts = same.split()
    times = json.loads(counts)
    # Where the last step of an epoch cannot be divided evenly some samples come once more.
    assert size == "3" and min(times) == EPOCHS, times
    assert sum(times) - EPOCHS * SAMPLES < 3 * EPOCHS, times


@pytest.mark.parametrize("style", ["train", "session"])
def test_an_estimators_ranks_return(nodes: Cluster, tmp_path: Path, style: str) -> None:
    out, err = leaves_and_returns(nodes, tmp_path, ["estimator_script.py", style], 8, 14)
    lines = sorted(line.split() for line in out.splitlines() if line.startswith("RESULT"))
    assert [line[:3] for line in lines] == [["RESULT", style, str(rank)] for rank in range(3)], err
    assert len({line[3] for line in lines}) == 1, "weights and optimizer are the same"
