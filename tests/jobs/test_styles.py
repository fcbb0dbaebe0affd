"""Real jobs that train in many ways, a rank killed in each, end as an undisturbed job does."""

import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft

SCRIPT = str(SCRIPTS / "styles_script.py")
pytestmark = pytest.mark.timeout(600)  # two jobs, one of many restarts
RANKS = 3


def between_passes(snapshot_steps: int, passes: int, steps: int) -> list[int]:
    """Steps before which the latest snapshot has gradients summed up that are not reduced yet."""
    latest = {step: (step - 1) // snapshot_steps * snapshot_steps for step in range(1, steps)}
    return [step for step, snapshot in latest.items() if snapshot % passes]


# Steps after which a rank may die, by way, in the script's order.
STEPS = {
    "minimise": between_passes(snapshot_steps=3, passes=2, steps=16),
    "tape": range(1, 16),
    "fit": between_passes(snapshot_steps=4, passes=3, steps=24),
    "mixed": range(4, 16),
    "legacy": range(2, 16, 2),
    "elastic": range(1, 8),
}
Results = dict[tuple[str, int], tuple[str, ...]]  # by way and rank


def train(run_hvdft: RunHvdft, folder: Path, kills: str = "") -> tuple[Results, list[int]]:
    """Returns what every rank ended with, and the incarnations in which."""
    folder.mkdir()
    command = [sys.executable, "-W", "ignore", SCRIPT, str(folder)]
    env = {"KILLS": kills, "HOROVOD_FT_MAX_FAILURES": "9"}
    ended = run_hvdft(["run", "-np", str(RANKS), *command], timeout=250, env=env)
    assert ended.code == 0, ended.err
    results: Results = {}
    incarnations = [0] * RANKS
    for word, *told in map(str.split, ended.out.splitlines()):
        if word == "RESULT":
            key, found = (told[0], int(told[1])), tuple(told[2:])
            # A restarted process tells again what its predecessors have told.
            assert results.setdefault(key, found) == found, (kills, key)
        elif word == "END":
            incarnations[int(told[0])] = int(told[1])
    assert len(results) == len(STEPS) * RANKS, ended.out
    return results, incarnations


def drawn(seed: int) -> tuple[str, list[int]]:
    """Draws the deaths, by step, of each way; also returns how often each rank dies."""
    generator, deaths, kills = random.Random(seed), Counter[int](), []
    for way, steps in STEPS.items():
        rank, step = generator.randrange(RANKS), generator.choice(steps)
        kills.append(f"{way}:{rank}:{deaths[rank]}:{step}")
        deaths[rank] += 1
    return " ".join(kills), [deaths[rank] for rank in range(RANKS)]


@pytest.mark.shows(later=True)
def test_every_way_to_train_survives_a_kill(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    expected, _ = train(run_hvdft, tmp_path / "undisturbed")
    for way in STEPS:
        weights, statistics, own = zip(*(expected[way, rank] for rank in range(RANKS)), strict=True)
        assert len(set(weights)) == 1, way
        assert len(set(own)) == RANKS, way
        # Batch statistics are a rank's own, but where they are synchronised.
        assert len(set(statistics)) == (1 if way == "legacy" else RANKS), way
    kills, deaths = drawn(20220512)
    results, incarnations = train(run_hvdft, tmp_path / "killed", kills)
    assert results == expected, kills
    assert incarnations == deaths
