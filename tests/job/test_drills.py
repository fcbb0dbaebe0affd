"""Drills: what `--inject` takes, what it refuses, and what a worker gets of it."""

import os
import re
import signal
import subprocess
import sys

import pytest
from conftest import ROOT

from hvd_ft.errors import HvdFtError
from hvd_ft.job import drills
from hvd_ft.native.types import Point

HEADER = ROOT / "hvd_ft" / "csrc" / "include" / "hvd_ft.h"


def test_the_points_are_those_of_the_core() -> None:
    named = re.findall(r"HVDFT_AT_(\w+) = (\d+)", HEADER.read_text())
    assert {name: int(value) for name, value in named} == {p.name: p.value for p in Point}


def test_the_documents_name_every_point() -> None:
    usage = (ROOT / "docs/how-to/drills.md").read_text()
    table = re.findall(r"^\| `([a-z_]+)` \|", usage, re.MULTILINE)
    assert table == [point.name.lower() for point in Point]


def test_a_step_a_point_and_an_op() -> None:
    step = drills.parse("rank=2,step=30")
    assert (step.rank, step.incarnation, step.point, step.step) == (2, 0, Point.STEP, 30)
    assert (step.op, step.way, step.value) == (None, "s", 9)
    op = drills.parse("rank=1,op=7,incarnation=2,exit=1")
    assert (op.incarnation, op.point, op.op) == (2, Point.CONTRIBUTE, 7)
    assert (op.way, op.value) == ("x", 1)
    both = drills.parse("point=wait,op=120,step=4,rank=0,signal=SIGSEGV")
    assert (both.point, both.op, both.step, both.value) == (Point.WAIT, 120, 4, 11)
    assert drills.parse("rank=0,step=1,raise").way == "r"
    flip = drills.parse("rank=2,incarnation=1,step=30,flip=dense/kernel:0")
    assert (flip.point, flip.step, flip.op, flip.way) == (Point.STEP, 30, None, "f")
    slow = drills.parse("rank=2,slow=1.3")
    assert (slow.point, slow.step, slow.way, slow.value) == (Point.STEP, None, "w", 130)
    assert drills.parse("rank=2,step=30,slow=2").step == 30


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "'' is not known; give rank=R, agent=R, shim=R or mpirun, one of"),
        ("rank=1,when=3", "'when=3' is not known"),
        ("leave=1", "leave= goes with step=N alone"),
        ("rank=1,slow=1", "slow=1 is not how many times as long a step takes"),
        ("rank=1,slow=nan", "slow=nan is not how many times"),
        ("rank=1,slow=1000", "slow=1000 is not how many times"),
        ("rank=1,op=3,slow=2", "a rank is slow in whole steps"),
        ("rank=1,point=wait,slow=2", "a rank is slow in whole steps"),
        ("rank=1,slow=2,exit=1", "are two ways to strike"),
        ("shim=1,step=3,slow=2", "an agent and a shim die of"),
        ("leave=1,step=3,rank=2", "leave= goes with step=N alone"),
        ("leave=1-x,step=3", "leave=1-x is neither a rank nor a span like 2-3"),
        ("leave=0-2,step=3", "rank 0 cannot leave"),
        ("leave=3-2,step=3", "rank 0 cannot leave"),
        ("rank=1,step=3,raise=1", "'raise=1' is not known"),
        ("rank=1,step", "'step' is not known"),
        ("step=3", "rank= is missing"),
        ("rank=1,rank=2,step=3", "rank is there twice"),
        ("rank=-1,step=3", "rank=-1 is not a whole number from 0"),
        ("rank=1,step=3.5", "step=3.5 is not a whole number"),
        ("rank=1,step=³", "step=³ is not a whole number"),
        ("rank=1,op=99999999999", "op=99999999999 is not a whole number"),
        ("rank=1", "give one of step=N, op=N and point=NAME"),
        ("rank=1,step=1,op=1", "give one of step=N, op=N and point=NAME"),
        ("rank=1,point=nowhere", "no point 'nowhere'; there are start, attach, join, "),
        ("rank=1,step=1,signal=FUN", "no signal 'FUN'; there are ABRT, BUS, "),
        ("rank=1,step=1,exit=256", "exit=256 is not an exit code from 0 to 255"),
        ("rank=1,step=1,exit=one", "exit=one is not a whole number"),
        ("rank=1,step=1,exit=1,raise", "exit and raise are two ways to strike"),
        ("rank=1,step=1,exit=1,flip=w", "exit and flip are two ways to strike"),
        ("rank=1,op=1,flip=w", "give step=N as the place of flip="),
        ("rank=1,point=start,flip=w", "give step=N as the place of flip="),
        ("rank=1,point=wait,step=3,flip=w", "give step=N as the place of flip="),
        ("rank=1,point=step,op=0,step=3,flip=w", "give step=N as the place of flip="),
        ("rank=1,step=3,flip=", "flip= is the name of a variable"),
        ("rank=1,step=3,flip=a;b", "flip= is the name of a variable"),
        ("rank=1,step=3,flip", "'flip' is not known"),
        ("agent=1,step=3,flip=w", "an agent and a shim die of signal=KILL"),
        ("rank=1,point=contribute,raise", "no Python to raise at contribute; raise goes with "),
        ("rank=1,point=start,op=1", "at start no op and no step is known"),
        ("rank=1,point=propose", "only rank 0 passes propose"),
        ("rank=0,point=announce", "rank 0 announces nothing"),
        ("agent=1,step=3,signal=TERM", "an agent and a shim die of signal=KILL"),
        ("agent=1,step=3,incarnation=1", "an agent and a shim die of signal=KILL"),
        ("agent=1,rank=1,step=3", "an agent and a shim die of signal=KILL"),
        ("mpirun,agent=1,step=3", "an agent and a shim die of signal=KILL"),
        ("shim=1,agent=1,step=3", "give one of them"),
        ("shim=1,step=3,exit=1", "give one of them"),
        ("mpirun,step=3,signal=STOP", "mpirun is killed"),
        ("mpirun=1,step=3", "'mpirun=1' is not known"),
        ("agent=1", "give one of step=N, op=N and point=NAME"),
    ],
)
def test_what_is_no_drill_gets_one_line(text: str, part: str) -> None:
    with pytest.raises(HvdFtError) as error:
        drills.parse(text)
    line = str(error.value)
    assert line.startswith(f"--inject {text!r}: ")
    assert part in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "rank", "number"),
    [
        ("agent=2,step=30", 2, signal.SIGUSR1),
        ("agent=2,step=30,signal=KILL", 2, signal.SIGUSR1),
        ("agent=2,step=30,signal=STOP", 2, signal.SIGRTMIN + 6),
        ("shim=1,step=30", 1, signal.SIGKILL),
        ("nursery=1,step=30", 1, signal.SIGKILL),  # its name in earlier versions
        ("shim=1,op=2,signal=STOP", 1, signal.SIGSTOP),
        ("mpirun,point=wait,op=7", 0, signal.SIGUSR2),
        ("mpirun,rank=1,op=7", 1, signal.SIGUSR2),
    ],
)
def test_another_process_dies_at_a_point_of_a_worker(
    text: str, rank: int, number: signal.Signals
) -> None:
    drill = drills.parse(text)
    assert (drill.rank, drill.incarnation, drill.way, drill.value) == (rank, 0, "p", number)


def test_a_rank_that_the_job_does_not_have() -> None:
    drill = drills.parse("rank=2,step=1")
    drills.check_ranks([drill], 3)
    with pytest.raises(HvdFtError, match="the job's ranks are 0 to 1"):
        drills.check_ranks([drill], 2)


def test_ranks_that_are_to_leave_are_asked_by_rank_0() -> None:
    drill = drills.parse("leave=2-3,step=20")
    assert (drill.rank, drill.way, drill.step, drills.leaving(drill)) == (0, "l", 20, range(2, 4))
    drills.check_ranks([drill], 4)
    with pytest.raises(HvdFtError, match="the job's ranks are 0 to 2"):
        drills.check_ranks([drill], 3)


def test_a_worker_gets_only_its_own_drills() -> None:
    given = [
        drills.parse(text) for text in ("rank=1,step=5", "rank=1,op=7,exit=3", "rank=0,step=5")
    ]
    entries = f"{Point.STEP}:-1:5:s:9:rank=1,step=5;{Point.CONTRIBUTE}:7:-1:x:3:rank=1,op=7,exit=3"
    assert drills.drill_environment(given, 1, 0) == {drills.VARIABLE: entries}
    assert drills.drill_environment(given, 1, 1) == {}
    assert drills.drill_environment(given, 2, 0) == {}


PASSES = """\
from hvd_ft.native.types import Point
from hvd_ft.native import failpoint

failpoint(Point.CONTRIBUTE, 119)
failpoint(Point.WAIT, 120)
try:
    failpoint(Point.STEP)
except RuntimeError:
    print("raised", flush=True)
failpoint(Point.STEP)
failpoint(Point.CONTRIBUTE, 120)
print("not here")
"""


@pytest.mark.parametrize(
    ("way", "code"), [("exit=3", 3), ("signal=KILL", -9), ("signal=SEGV", -11)]
)
def test_each_drill_strikes_once_at_its_place_and_says_so(way: str, code: int) -> None:
    texts = [f"rank=1,op=120,{way}", "rank=1,point=step,raise"]
    env = drills.drill_environment([drills.parse(text) for text in texts], 1, 0)
    ended = subprocess.run(
        [sys.executable, "-c", PASSES],
        env={**os.environ, **env},
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (ended.returncode, ended.stdout) == (code, "raised\n")
    said = ended.stderr.splitlines()
    assert said == [f"hvdft: drill: {text}" for text in reversed(texts)]


def test_the_old_name_of_a_word_works_and_the_new_one_is_told() -> None:
    assert drills.renamed("nursery=1,step=30") == (
        "--inject nursery=1,step=30: nursery= is called shim= now"
    )
    assert drills.renamed("shim=1,step=30") is None
