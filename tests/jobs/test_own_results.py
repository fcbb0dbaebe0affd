"""Alltoall and reducescatter give every rank something else: also when it is replayed."""

import sys

from conftest import SCRIPTS, RunHvdft

SCRIPT = str(SCRIPTS / "own_results_script.py")
RANKS = "3"
# A round has three or four ops.
DRILLS = ("rank=1,point=copy_out,op=4", "rank=0,op=9", "rank=2,op=14")


def test_replayed_bit_for_bit(run_hvdft: RunHvdft) -> None:
    command = [sys.executable, SCRIPT]
    undisturbed = run_hvdft(["run", "-np", RANKS, *command])
    assert undisturbed.code == 0, undisturbed.err
    flags = [flag for drill in DRILLS for flag in ("--inject", drill)]
    ended = run_hvdft(["run", "-np", RANKS, *flags, *command])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(DRILLS), ended.err
    assert sorted(ended.out.splitlines()) == sorted(undisturbed.out.splitlines())
