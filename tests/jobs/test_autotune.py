"""Autotuning changes the fusion threshold while training runs, whoever dies meanwhile."""

import csv
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, Ended, RunHvdft

SCRIPT = str(SCRIPTS / "autotune_script.py")
SAMPLES = 4
FLAGS = (
    "--autotune",
    *("--autotune-warmup-samples", "0"),
    *("--autotune-steps-per-sample", "1"),
    *("--autotune-bayes-opt-max-samples", str(SAMPLES)),
)
# The coordinator between two choices; another rank, and the coordinator when it has proposed a
# choice; the coordinator when tuning is over; nobody.
DRILLS = {
    "between": ["rank=0,step=15"],
    "others": ["rank=1,step=21", "rank=0,point=proposed,step=27"],
    "over": ["rank=0,step=43"],
    "none": [],
}
CHANGE = re.compile(
    r"  op (\d+) tunes HOROVOD_FUSION_THRESHOLD to (\d+)(, the best)?"
    r"(?:; the one before: (\S+) MB/s)?"
)


def inject(drills: Sequence[str]) -> list[str]:
    return [word for drill in drills for word in ("--inject", drill)]


def changes(ended: Ended) -> list[tuple[str, ...]]:
    """What the log has: the op, the threshold, whether it is the best one, the former's score."""
    found = [CHANGE.fullmatch(line) for line in ended.out.splitlines() if "tunes" in line]
    return [tuple(match.groups("")) for match in found if match]


def digests(ended: Ended) -> set[str]:
    return set(re.findall(r"rank \d: ([0-9a-f]{64})", ended.out))


def check(ended: Ended, log: str) -> None:
    """Checks that the threshold was tuned to the end, and that Horovod's own log says the same."""
    assert ended.code == 0, ended.err
    found = changes(ended)
    assert len(found) == SAMPLES + 2, ended.out
    ops, thresholds, best, scores = zip(*found, strict=True)
    assert [int(x) for x in thresholds[:4]] == [4 << 20, 32 << 20, 16 << 20, 8 << 20]
    assert list(ops) == sorted(ops, key=int)
    assert best == ("",) * (SAMPLES + 1) + (", the best",)
    head, *rows = csv.reader(log.splitlines())
    assert [head[0], *head[-2:]] == [
        "hierarchical_allreduce",
        "tensor_fusion_threshold",
        "score",
    ]
    assert [row[-1] for row in rows[:-1]] == list(scores[1:])  # measured once, whoever died
    top = max(rows[:-1], key=lambda row: float(row[-1]))
    assert rows[-1] == top
    for row, threshold in zip(rows, thresholds, strict=True):
        assert float(row[-2]) == pytest.approx(int(threshold) / (1 << 20), rel=1e-5)


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("drills", DRILLS.values(), ids=DRILLS)
def test_the_threshold_is_tuned_and_the_bits_stay_the_same(
    run_hvdft: RunHvdft, tmp_path: Path, drills: Sequence[str]
) -> None:
    log = tmp_path / "tuned.csv"
    flags = [*FLAGS, "--autotune-log-file", str(log), *inject(drills)]
    command = ["run", "-np", "3", *flags, sys.executable, SCRIPT]
    ended = run_hvdft(command, env={"ONE_NODE": "1"})
    check(ended, log.read_text())
    assert ended.err.count("hvdft: drill: ") == len(drills), ended.err
    assert len(digests(ended)) == 1


def test_what_the_user_has_set_is_not_tuned(run_hvdft: RunHvdft) -> None:
    ended = run_hvdft(
        ["run", "-np", "2", *FLAGS, sys.executable, SCRIPT],
        env={"ONE_NODE": "1", "HOROVOD_FUSION_THRESHOLD": str(128 << 20)},
    )
    assert ended.code == 0, ended.err
    assert not changes(ended)
    assert ended.err.count("HOROVOD_FUSION_THRESHOLD is set, so autotuning leaves it") == 1


def test_nodes_take_part(cluster: Cluster) -> None:
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", "3", "-H", "n0:1,n1:2"]
    seen = []
    for flags in ([], [*FLAGS, *inject(DRILLS["between"])]):
        ended = cluster.hvdft("run", "--", *hvdft, *flags, sys.executable, SCRIPT)
        assert ended.code == 0, ended.err
        assert len(changes(ended)) == (SAMPLES + 2 if flags else 0)
        seen.append(digests(ended))
    assert seen[0] == seen[1] and len(seen[0]) == 1
