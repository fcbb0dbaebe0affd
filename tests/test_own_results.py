"""Alltoall, reducescatter and join give every rank something else: also when it is replayed."""

import sys
from pathlib import Path

from conftest import RunHvdft

SCRIPT = str(Path(__file__).with_name("own_results_script.py"))
RANKS = "3"
# A round has 4 to 7 ops, the last of them reductions of ranks that have not joined yet.
DRILLS = ("rank=1,point=copy_out,op=8", "rank=0,op=17", "rank=2,point=reduce,op=21", "rank=0,op=30")


def test_replayed_bit_for_bit(run_hvdft: RunHvdft) -> None:
    command = [sys.executable, SCRIPT]
    undisturbed = run_hvdft(["run", "-np", RANKS, *command])
    assert undisturbed.code == 0, undisturbed.err
    flags = [flag for drill in DRILLS for flag in ("--inject", drill)]
    ended = run_hvdft(["run", "-np", RANKS, *flags, *command])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(DRILLS), ended.err
    assert sorted(ended.out.splitlines()) == sorted(undisturbed.out.splitlines())
