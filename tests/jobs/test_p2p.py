"""Messages between workers of real jobs: whatever dies between, each arrives exactly once."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, Ended, RunHvdft

from hvd_ft.job.drills import parse
from hvd_ft.native.types import EventType, Point, State
from hvd_ft.reports.report import failures, intervals, read_report

SCRIPT = str(SCRIPTS / "p2p_script.py")
MESSAGE_POINTS = {Point.SEND, Point.SENT, Point.RECEIVE, Point.RECEIVED}


def run(
    run_hvdft: RunHvdft, style: str, drills: Sequence[str] = (), ranks: int = 3, **env: str
) -> Ended:
    inject = [word for drill in drills for word in ("--inject", drill)]
    command = ["run", "-np", str(ranks), *inject, sys.executable, SCRIPT, style]
    return run_hvdft(command, env={"HOROVOD_FT_MAX_FAILURES": "20", **env})


def sums(ended: Ended) -> dict[int, str]:
    """What each rank ended with."""
    assert ended.code == 0, ended.err
    results = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
    return {result["rank"]: result["digest"] for result in results}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, dict[int, str]]:
    """The ranks' final weights without a failure, by style."""
    return {}


# Ranks send to their successors and receive from their predecessors.
DRILLS = {
    "the sender": ["rank=0,point=send", "rank=0,incarnation=1,point=sent"],
    "the receiver, while the sender sends": [
        *("rank=1,point=start", "rank=1,incarnation=1,point=receive"),
        "rank=1,incarnation=2,point=received",
    ],
    "both neighbours of a rank": ["rank=0,step=7", "rank=2,step=7"],
    "between send and receive, everyone": [
        *(f"rank={rank},point=sent,step=11" for rank in range(3)),
        *(f"rank={rank},incarnation=1,point=receive,step=13" for rank in range(3)),
    ],
    "around a snapshot": [
        *("rank=0,point=snapshot_publish,step=10", "rank=1,point=snapshot_published,step=10"),
        *("rank=1,incarnation=1,point=restore", "rank=2,point=received,step=10"),
        "rank=2,incarnation=1,point=send,step=13",
    ],
}


def test_no_point_of_messages_is_left_out() -> None:
    drills = [parse(text) for texts in DRILLS.values() for text in texts]
    assert {drill.point for drill in drills} >= MESSAGE_POINTS


@pytest.mark.shows
@pytest.mark.parametrize(
    ("style", "name"),
    [*(("loop", name) for name in DRILLS), ("all", "between send and receive, everyone")],
)
def test_killed_ranks_change_nothing(
    run_hvdft: RunHvdft, undisturbed: dict[str, dict[int, str]], style: str, name: str
) -> None:
    drills = DRILLS[name]
    if style not in undisturbed:
        undisturbed[style] = sums(run(run_hvdft, style))
        assert len(set(undisturbed[style].values())) == 1
    ended = run(run_hvdft, style, drills)
    assert sums(ended) == undisturbed[style]
    assert ended.err.count("hvdft: drill:") == len(drills), ended.err


def test_killed_ranks_on_several_nodes(cluster: Cluster, run_hvdft: RunHvdft) -> None:
    alone = sums(run(run_hvdft, "loop", ranks=4))
    drills = [
        *("rank=1,point=sent,step=7", "rank=2,point=receive,step=8", "rank=3,point=send,step=12"),
        *("rank=0,point=received,step=12", "rank=2,incarnation=1,point=snapshot_published,step=15"),
    ]
    inject = [word for drill in drills for word in ("--inject", drill)]
    # What ranks 2 and 3 send each other goes by way of another node.
    flags = ["-np", "4", "-H", "n0:2,n1:1,n2:1", *inject]
    command = [sys.executable, "-m", "hvd_ft.cli", "run", *flags, sys.executable, SCRIPT, "loop"]
    ended = cluster.hvdft("run", "--", *command)
    assert sums(ended) == alone
    assert ended.err.count("hvdft: drill:") == len(drills), ended.err
    left = "find /dev/shm -path '*hvdft-*/*'"
    assert [cluster.sh(node, left) for node in ("n0", "n1", "n2")] == [""] * 3


@pytest.mark.shows
def test_agents_that_die_twice_bring_no_message_twice(
    run_hvdft: RunHvdft, undisturbed: dict[str, dict[int, str]]
) -> None:
    """Every rank is a node, and what the first and the last send passes through the one between."""
    if "loop" not in undisturbed:
        undisturbed["loop"] = sums(run(run_hvdft, "loop"))
    drills = ["agent=1,step=7", "rank=2,point=received,step=9", "agent=0,step=13"]
    inject = [word for drill in drills for word in ("--inject", drill)]
    command = ["run", "-np", "3", "--topology", "flat", *inject, sys.executable, SCRIPT, "loop"]
    ended = run_hvdft(command, env={"HOROVOD_FT_NODES_BELOW": "1"})
    assert sums(ended) == undisturbed["loop"]
    assert ended.err.count("; starting generation") == 2, ended.err
    assert ended.err.count("hvdft: drill:") == len(drills), ended.err


def test_messages_of_every_kind(run_hvdft: RunHvdft) -> None:
    ended = run(run_hvdft, "kinds", ["rank=0,point=received", "rank=1,point=sent"], ranks=2)
    assert ended.code == 0, ended.err
    assert ended.out.count("well") == 2


def test_the_report_tells_of_a_script_without_collectives(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    report = tmp_path / "report.jsonl"
    flags = ["-np", "2", "--report", str(report), "--no-live", "--inject", "rank=1,step=5"]
    ended = run_hvdft(["run", *flags, sys.executable, SCRIPT, "loop"])
    assert ended.code == 0, ended.err
    told = read_report(report)
    joined = {(e.rank, e.incarnation) for e in told.events if e.type is EventType.JOINED}
    assert joined == {(0, 0), (1, 0), (1, 1)}
    [failure] = failures(told.events)
    assert failure.waits[0] > 0.0  # in ft_recv
    waiting = [found for found in intervals(told.events) if found.state is State.WAITING]
    assert {found.rank for found in waiting} == {0}
    assert "rank 1 is back after" in ended.err


@pytest.mark.shows
@pytest.mark.parametrize(
    ("style", "said"),
    [
        ("other tag", "is not what it sent before, its tag differs: the log has float64 [4] with"),
        ("other shape", "is not what it sent before, its type or shape differs"),
        ("other data", "is not what it sent before, its data differs"),
        ("other receive", "its receive 0 from rank 1 was of tag 1, and now the script"),
        ("ended", "rank 1 has ended, but rank 0 waits for a message with tag 9 from it"),
        ("late", "rank 0 waited 1 s for a message with tag 9 from rank 1"),
    ],
)
def test_what_stops_the_job(run_hvdft: RunHvdft, style: str, said: str) -> None:
    seconds = "1" if style == "late" else "60"
    ended = run(run_hvdft, style, ranks=2, HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS=seconds)
    assert ended.code == 1
    lines = [line for line in ended.err.splitlines() if line.startswith("hvdft: ") and said in line]
    assert len(lines) == 1, ended.err


def test_the_end_of_the_job_ends_the_wait(run_hvdft: RunHvdft) -> None:
    ended = run(run_hvdft, "stopped", ranks=2)
    assert ended.code == 3, ended.err


@pytest.mark.parametrize(
    ("style", "code"), [("fill", 1), ("fill in a loop", 0), ("fill in a loop that chooses", 0)]
)
def test_the_room_is_that_of_the_arena(run_hvdft: RunHvdft, style: str, code: int) -> None:
    ended = run(run_hvdft, style, ranks=2, HOROVOD_FT_ARENA_BYTES="64M")
    assert ended.code == code, ended.err
    if code:
        assert "the next message needs " in ended.err
        assert "raise HOROVOD_FT_ARENA_BYTES" in ended.err


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("p2p.ft_send(a, 2)", "dest=2 is not a rank: give one from 0 to 1"),
        ("p2p.ft_recv(a, -1)", "source=-1 is not a rank: give one from 0 to 1"),
        ("p2p.ft_send(a, 1, tag=1 << 31)", "tag=2147483648 is not allowed"),
        ("p2p.ft_send(['x'], 1)", "an array of <U1 cannot be sent"),
        ("p2p.ft_send(a.astype('>f8'), 1)", "an array of >f8 cannot be sent, whose bytes are in"),
        ("p2p.ft_recv(a.astype('>f8'), 1)", "use an array of float64, such as array.astype('<f8')"),
        ("p2p.ft_recv(np.array(['x']), 1)", "an array of <U1 cannot be received into"),
        ("p2p.ft_recv([1], 1)", "a list cannot be received into"),
        ("p2p.ft_recv(a[::2], 1)", "not contiguous or not writeable"),
        ("p2p.ft_send(np.ones((1,) * 32), 1)", "has too many dimensions for a message"),
        ("p2p.ft_send(a, np.int64(0), tag=np.int8(3)); p2p.ft_recv(a, 0, 3)", ""),
        (
            "p2p.ft_send(a, 0); p2p.ft_recv(np.ones(3, np.int8), 0)",
            "from rank 0 is float64 [4], which does not go into an array of int8 [3]",
        ),
    ],
)
def test_calls_that_are_wrong_say_so(arena_dir: Path, call: str, said: str) -> None:
    from hvd_ft import native

    native.create_node(str(arena_dir), "mine", 2, 1 << 30)
    for rank in range(2):
        native.create_rank(str(arena_dir), "mine", rank, 1 << 30)
    job = {"HOROVOD_FT_DIR": str(arena_dir), "HOROVOD_FT_JOB": "mine"}
    worker = {"HOROVOD_RANK": "0", "HOROVOD_FT_INCARNATION": "0"}
    assert said in call_in_python(call, {**job, **worker})


def test_without_an_agent() -> None:
    assert "start the script with 'hvdft run'" in call_in_python("p2p.ft_send(a, 0)", {})


def call_in_python(call: str, env: dict[str, str]) -> str:
    """Runs a call in a process of its own; returns the last line that it said."""
    script = (
        "import numpy as np; from hvd_ft import p2p; a = np.ones(4)\n"
        f"try: {call}\nexcept p2p.HvdFtError as error: raise SystemExit(str(error))"
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, env={**os.environ, **env}, check=False, timeout=60, capture_output=True, text=True
    )
    return ended.stderr.strip().rpartition("\n")[2]
