"""Ranks leave a running job and return to it, and the samples of a data set are dealt out anew."""

import json
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


@pytest.mark.parametrize("style", ["fit", "state", "draws"])
def test_what_is_left_is_dealt_to_the_ranks_that_there_are(
    nodes: Cluster, tmp_path: Path, style: str
) -> None:
    file = tmp_path / "hosts"
    file.write_text("n0:2\nn1:1\n")
    script = [sys.executable, "-W", "ignore", str(SCRIPTS / "sampler_script.py"), style]
    hosts = ["-np", "3", "--host-discovery-script", f"cat {file}", "--min-np", "2"]
    job = InPlace(nodes, tmp_path, *hosts, returns=True, work=(script, 13, 20))
    file.write_text("n0:2\n")
    job.running.await_line("the hosts have changed (n1 less); starting generation 1")
    job.shrink()
    file.write_text("n0:2\nn1:1\n")
    job.running.await_line("rank 2 is back, and waits for the next step boundary")
    out, err = job.end()
    assert "died" not in err
    lines = [line.split(maxsplit=3) for line in ends(out)]
    assert [line[:3] for line in lines] == [["END", str(rank), "of"] for rank in range(3)], err
    (same,) = {line[3] for line in lines}
    size, *_, counts = same.split()
    times = json.loads(counts)
    # Where the last step of an epoch cannot be divided evenly some samples come once more.
    assert size == "3" and min(times) == EPOCHS, times
    assert sum(times) - EPOCHS * SAMPLES < 3 * EPOCHS, times
    (leaves,) = [line for line in err.splitlines() if "the job has 2 ranks instead of 3" in line]
    (back,) = [line for line in err.splitlines() if "the job has 3 ranks instead of 2" in line]
    assert "from step 14 " in leaves or "from step 15 " in leaves, leaves
    assert "from step 21 " in back or "from step 22 " in back, back
