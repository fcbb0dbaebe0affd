"""PyTorch jobs whose ranks are killed at every named point, in loops of one's own and in DDP.

Without snapshots a rank repeats everything from the log, and no steps are counted.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, Once, RunHvdft

from hvd_ft.job.drills import parse
from hvd_ft.native.types import Point

pytestmark = pytest.mark.timeout(600)
STEPS = 18  # of each rank, with two ranks, in both scripts
PYTHON = [sys.executable, "-W", "ignore"]
STYLES = {
    "loop": [*PYTHON, str(SCRIPTS / "torch_state_script.py"), "plain"],
    "ddp": [*PYTHON, str(SCRIPTS / "torch_ddp_script.py"), "plain", "snapshots"],
    "loop, no snapshots": [*PYTHON, str(SCRIPTS / "torch_state_script.py"), "bare"],
    "ddp, no snapshots": [*PYTHON, str(SCRIPTS / "torch_ddp_script.py"), "plain", "none"],
}

# Two ranks: every point of a worker's life, ranks at once and in turn.
DRILLS = {
    "negotiation": [
        *("rank=0,point=start,signal=SEGV", "rank=1,point=attach"),
        *("rank=0,incarnation=1,point=propose,step=3", "rank=1,incarnation=1,point=join"),
        *("rank=0,incarnation=2,point=proposed,step=6", "rank=1,incarnation=2,point=announce"),
    ],
    "ops": [
        *("rank=0,point=contribute,step=3", "rank=1,point=executed,step=5"),
        *("rank=0,incarnation=1,point=copy_in,step=8", "rank=1,incarnation=1,point=wait"),
        *("rank=0,incarnation=2,point=reduce", "rank=1,incarnation=2,step=14,signal=TERM"),
    ],
    "snapshots": [
        *("rank=0,point=fingerprints,step=4", "rank=1,point=snapshot_drop,step=8"),
        *(
            "rank=0,incarnation=1,point=snapshot_write,step=8",
            "rank=1,incarnation=1,point=snapshot_publish,step=12",
        ),
        "rank=0,incarnation=2,point=snapshot_published,step=12",
        "rank=1,incarnation=2,point=snapshot_delivered,step=16",
    ],
    "recovery and end": [
        *("rank=0,step=6", "rank=1,step=9"),
        *("rank=0,incarnation=1,point=restore", "rank=1,incarnation=1,point=replay"),
        f"rank=0,incarnation=2,point=copy_out,step={STEPS - 1}",
        *("rank=0,incarnation=3,point=end", "rank=1,incarnation=2,point=exit"),
    ],
}
# Those that a process without snapshots passes, at ops in the place of steps.
BARE_DRILLS = {
    "negotiation": [
        *("rank=0,point=start,signal=SEGV", "rank=1,point=attach"),
        *("rank=0,incarnation=1,point=propose", "rank=1,incarnation=1,point=join"),
        *("rank=0,incarnation=2,point=proposed", "rank=1,incarnation=2,point=announce"),
    ],
    "ops": [
        *("rank=0,point=contribute,op=20", "rank=1,point=executed,op=24"),
        *("rank=0,incarnation=1,point=copy_in,op=30", "rank=1,incarnation=1,point=wait"),
        *("rank=0,incarnation=2,point=reduce", "rank=1,incarnation=2,op=40,signal=TERM"),
    ],
    "recovery and end": [
        *("rank=0,point=executed,op=22", "rank=1,point=executed,op=28"),
        *("rank=0,incarnation=1,point=replay", "rank=1,incarnation=1,point=replay"),
        "rank=0,incarnation=2,point=copy_out,op=44",
        *("rank=0,incarnation=3,point=end", "rank=1,incarnation=2,point=exit"),
    ],
}
SHOWN = ("loop", "ops")
Results = dict[int, tuple[str, str]]


def train(run_hvdft: RunHvdft, script: Sequence[str], drills: Sequence[str] = ()) -> Results:
    """Returns the digests of two ranks: of the weights, and of what is a rank's own."""
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_hvdft(
        ["run", "-np", "2", "--no-live", *inject, *script],
        env={"HOROVOD_FT_MAX_FAILURES": "10"},
    )
    assert ended.code == 0, ended.err
    struck = re.findall(r"^hvdft: drill: (.*)$", ended.err, re.MULTILINE)
    assert sorted(struck) == sorted(drills), ended.err
    lines = re.findall(r"^RESULT (\d) \d (\S+) (\S+)$", ended.out, re.MULTILINE)
    found = {int(rank): (weights, own) for rank, weights, own in sorted(lines)}
    assert list(found) == [0, 1], ended.out
    assert found[0][0] == found[1][0]
    return found


def drills_of(style: str) -> dict[str, list[str]]:
    """Returns the drills of a style, by name."""
    return BARE_DRILLS if "no snapshots" in style else DRILLS


def check(run_hvdft: RunHvdft, once: Once, style: str, drills: Sequence[str]) -> None:
    def whole(folder: Path) -> None:
        (folder / "results").write_text(repr(train(run_hvdft, STYLES[style])))

    expected = (once(f"torch-undisturbed-{style}", whole) / "results").read_text()
    assert repr(train(run_hvdft, STYLES[style], drills)) == expected


def test_no_point_is_left_out() -> None:
    drilled = {parse(text).point for drills in DRILLS.values() for text in drills}
    # test_p2p.py has the first four, test_shared_snapshots.py and test_in_place.py the others.
    elsewhere = {Point.SEND, Point.SENT, Point.RECEIVE, Point.RECEIVED, Point.MARK, Point.RETURN}
    assert drilled == set(Point) - elsewhere
    bare = {parse(text).point for drills in BARE_DRILLS.values() for text in drills}
    of_snapshots = {point for point in Point if point.name.startswith("SNAPSHOT")}
    assert drilled - bare == of_snapshots | {Point.STEP, Point.RESTORE, Point.FINGERPRINTS}


CASES = [
    pytest.param(
        style,
        name,
        marks=pytest.mark.shows(later=True) if (style, name) == SHOWN else pytest.mark.long,
    )
    for style in STYLES
    for name in drills_of(style)
]


@pytest.mark.parametrize(("style", "name"), CASES)
def test_ranks_killed_at_every_point_change_nothing(
    run_hvdft: RunHvdft, once: Once, style: str, name: str
) -> None:
    check(run_hvdft, once, style, drills_of(style)[name])
