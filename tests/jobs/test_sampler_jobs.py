"""Jobs whose samples an ElasticSampler deals out: killed, and with another number of ranks."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, Ended, Once, RunHvdft, running_cluster
from test_network import disturb
from test_resizing_jobs import start

from hvd_ft.checkpoint.catalogue import find

SAMPLES, EPOCHS = 150, 3
WORK = [sys.executable, "-W", "ignore", str(SCRIPTS / "sampler_script.py")]
STYLES = ("fit", "state", "draws")
EVERY = {"EVERY": "4"}


def ends(out: str, ranks: int, epochs: int = EPOCHS) -> list[str]:
    """What ranks print that have trained with each sample once an epoch; at an epoch's end, where
    ranks get as many samples, with fewer than there are ranks once more."""
    found = sorted(line for line in out.splitlines() if line.startswith("END"))
    assert [line.split()[1:4] for line in found] == [
        [str(r), "of", str(ranks)] for r in range(ranks)
    ]
    assert len({line.split(maxsplit=4)[4] for line in found}) == 1, "weights, optimizer, counts"
    counts = Counter(dict(enumerate(json.loads(found[0].split()[-1]))))
    again = counts - Counter(dict.fromkeys(range(SAMPLES), epochs))
    assert min(counts.values()) == epochs
    assert again.total() < epochs * ranks
    return found


@pytest.fixture
def undisturbed(run_hvdft: RunHvdft, once: Once) -> list[str]:
    """What two ranks end with, in whatever way they draw: one result for all."""

    def make(folder: Path) -> None:
        ended = run_hvdft(["run", "-np", "2", *WORK, "state"], env=EVERY)
        assert ended.code == 0, ended.err
        (folder / "out").write_text(ended.out)

    return ends((once("sampler", make) / "out").read_text(), 2)


def inject(drills: Sequence[str]) -> list[str]:
    return [word for drill in drills for word in ("--inject", drill)]


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("style", STYLES)
def test_killed_ranks_change_nothing(
    run_hvdft: RunHvdft, undisturbed: list[str], style: str
) -> None:
    # In the middle of an epoch, of the next one, at its first step, and at its last.
    drills = ["rank=1,step=7", "rank=0,step=30", "rank=1,incarnation=1,step=19"]
    drills += ["rank=0,incarnation=1,step=39"]
    ended = run_hvdft(["run", "-np", "2", *inject(drills), *WORK, style], env=EVERY)
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill") == len(drills), ended.err
    assert ends(ended.out, 2) == undisturbed


@pytest.mark.parametrize("style", STYLES)
def test_each_remaining_sample_is_dealt_to_another_number_of_ranks(
    run_hvdft: RunHvdft, tmp_path: Path, style: str
) -> None:
    """From three to two, in the middle of an epoch, and to four in another epoch."""
    folder = tmp_path / "c"

    def part(ranks: int, *flags: str, drills: Sequence[str] = ()) -> Ended:
        keep = ["--checkpoint-dir", str(folder), "--checkpoint-keep", "9"]
        return run_hvdft(
            ["run", "-np", str(ranks), *keep, *flags, *inject(drills), *WORK, style],
            env={**EVERY, "HOROVOD_FT_MAX_FAILURES": "1"},
        )

    def loses(step: int) -> list[str]:
        return [f"rank=1,step={step}", f"rank=1,step={step},incarnation=1"]

    assert part(3, drills=loses(7)).code != 0
    ended = part(2, "--resume", str(folder), drills=loses(30))
    assert ended.code != 0
    assert "continuing from" in ended.err
    ended = part(4, "--resume", str(folder))
    assert ended.code == 0, ended.err
    parts = [(each.manifest.size, each.manifest.step) for each in find(folder) if each.manifest]
    # The second one's snapshots are counted from where it began, at a step of the first one's.
    assert parts[0] == (3, 4) and parts[1][0] == 2 and 26 <= parts[1][1] < 30, parts
    ends(ended.out, 4)


@pytest.mark.job
@pytest.mark.shows(later=True)
@pytest.mark.parametrize("style", ["fit", "state"])
def test_a_lost_hosts_samples_are_dealt_to_the_others(tmp_path: Path, style: str) -> None:
    """Those since the last snapshot, which the lost rank had as well as the others."""
    awaited = tmp_path / "awaited"
    keep = ["--checkpoint-dir", str(tmp_path / "c"), "--checkpoint-keep", "9"]
    hosts = ["-np", "4", "-H", "n0:2,n1:1,n2:1", "--min-np", "2"]
    with running_cluster("-n", "3") as cluster:
        env = {**EVERY, "AWAIT": str(awaited)}
        running = start(cluster, *hosts, *keep, work=[*WORK, style], env=env)
        running.await_line("waiting for the test")
        disturb(cluster, "kill", node="n1")
        running.await_line("the job continues with 3 ranks on n0:2,n2:1")
        awaited.touch()
        code, out, err = running.end()
        assert code == 0, err
    found = ends(out, 3)
    (path,) = [each.path for each in find(tmp_path / "c") if each.state == "without rank 2"]
    # As a run that shrinks there.
    with running_cluster("-n", "3") as cluster:
        again = ["-np", "3", "-H", "n0:2,n2:1", "--resume", str(path)]
        code, out, err = start(cluster, *again, work=[*WORK, style], env=EVERY).end()
        assert code == 0, err
    assert ends(out, 3) == found
