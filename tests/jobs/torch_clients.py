"""Jobs of PyTorch's clients whose ranks are killed, beside undisturbed ones."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from conftest import Ended, RunHvdft

from hvd_ft.checkpoint.catalogue import find

Results = dict[int, tuple[int, str, str]]


def run(
    run_hvdft: RunHvdft, words: Sequence[str], drills: Sequence[str], ranks: int, *flags: str
) -> Ended:
    """Runs a job; a rank may fail once at a step."""
    inject = [word for drill in drills for word in ("--inject", drill)]
    return run_hvdft(
        ["run", "-np", str(ranks), "--no-live", *flags, *inject, sys.executable, *words],
        env={"HOROVOD_FT_MAX_FAILURES": "1" if "--checkpoint-dir" in flags else "9"},
    )


def train(
    run_hvdft: RunHvdft,
    words: Sequence[str],
    drills: Sequence[str] = (),
    *flags: str,
    ranks: int = 2,
) -> Results:
    """Runs a job that ends well.

    Args:
        run_hvdft: the fixture.
        words: the script, its style, "snapshots" or "none", and what else it takes.
        drills: that have to strike.
        flags: more of hvdft run.
        ranks: how many.

    Returns:
        Each rank's incarnation, a digest of what is shared and one of the rank's own values.
    """
    ended = run(run_hvdft, words, drills, ranks, *flags)
    assert ended.code == 0, ended.err
    struck = re.findall(r"^hvdft: drill: (.*)$", ended.err, re.MULTILINE)
    assert sorted(struck) == sorted(drills), ended.err
    assert ended.err.count("takes no snapshots") == (words[2] == "none")
    lines = re.findall(r"^RESULT (\d) (\d) (\S+) (\S+)$", ended.out, re.MULTILINE)
    found = {int(rank): (int(incarnation), *rest) for rank, incarnation, *rest in lines}
    assert sorted(found) == list(range(ranks)), ended.out
    assert len({shared for _, shared, _ in found.values()}) == 1, ended.out
    return found


def check_alike(whole: Results, killed: Results, drills: Sequence[str]) -> None:
    """Checks that a job whose ranks were killed has ended as an undisturbed one."""
    deaths = [sum(drill.startswith(f"rank={rank},") for drill in drills) for rank in whole]
    assert [killed[rank][0] for rank in whole] == deaths
    assert [killed[rank][1:] for rank in whole] == [whole[rank][1:] for rank in whole]


def break_off(
    run_hvdft: RunHvdft, words: Sequence[str], folder: Path, step: int, ranks: int = 2
) -> None:
    """Runs a job whose last rank dies twice at a step, so that it ends with a checkpoint."""
    drill = f"rank={ranks - 1},step={step}"
    drills = [drill, f"{drill},incarnation=1"]
    ended = run(run_hvdft, words, drills, ranks, "--checkpoint-dir", str(folder))
    assert ended.code != 0
    found = [each.manifest for each in find(folder) if each.manifest]
    assert found and found[-1].size == ranks, ended.err
    assert 0 < found[-1].step <= step, found
