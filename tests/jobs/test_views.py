"""Results that are views of the log: right, however long a script holds them."""

import sys

import pytest
from conftest import SCRIPTS, RunHvdft

SCRIPT = str(SCRIPTS / "views_script.py")
STEPS = 12


def digests(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line.startswith("rank "))


@pytest.mark.shows(later=True)
def test_held_over_snapshots_kills_and_shutdown(run_hvdft: RunHvdft) -> None:
    command = [sys.executable, SCRIPT]
    undisturbed = run_hvdft(["run", "-np", "3", *command])
    assert undisturbed.code == 0, undisturbed.err
    # Who writes to a view ends by SIGSEGV, and copies when it comes back and replays.
    assert " died " not in undisturbed.err, undisturbed.err
    # Of a step's results all but the small one and the float16 average, which is divided when it
    # is copied; in later steps neither those whose place is still held by an older one.
    viewed = int(undisturbed.out.split(" viewed")[0].split()[-1])
    assert 6 <= viewed <= STEPS * 6, undisturbed.out
    drills = ["--inject", "rank=1,op=40", "--inject", "rank=0,op=70"]
    ended = run_hvdft(["run", "-np", "3", *drills, *command])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == 2, ended.err
    assert digests(ended.out) == digests(undisturbed.out)
