"""Jobs of PyTorch's clients whose ranks are killed, beside undisturbed ones."""

import re
import sys
from collections.abc import Sequence

from conftest import RunHvdft

Results = dict[int, tuple[int, str, str]]


def train(run_hvdft: RunHvdft, words: Sequence[str], drills: Sequence[str] = ()) -> Results:
    """Runs a job of two ranks.

    Args:
        run_hvdft: the fixture.
        words: the script, its style, "snapshots" or "none", and what else it takes.
        drills: that have to strike.

    Returns:
        Each rank's incarnation, a digest of what is shared and one of the rank's own values.
    """
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_hvdft(["run", "-np", "2", *inject, sys.executable, *words])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(drills), ended.err
    assert ended.err.count("takes no snapshots") == (words[2] == "none")
    lines = re.findall(r"^RESULT (\d) (\d) (\S+) (\S+)$", ended.out, re.MULTILINE)
    found = {int(rank): (int(incarnation), *rest) for rank, incarnation, *rest in lines}
    assert sorted(found) == [0, 1], ended.out
    assert found[0][1] == found[1][1]
    return found


def check_alike(whole: Results, killed: Results, drills: Sequence[str]) -> None:
    """Checks that a job whose ranks were killed has ended as an undisturbed one."""
    deaths = [sum(drill.startswith(f"rank={rank},") for drill in drills) for rank in (0, 1)]
    assert [killed[rank][0] for rank in (0, 1)] == deaths
    assert [killed[rank][1:] for rank in (0, 1)] == [whole[rank][1:] for rank in (0, 1)]
