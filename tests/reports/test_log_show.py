"""`hvdft log show`: what is read of a running job, and how it is shown."""

import os
import sys
from pathlib import Path

import pytest
from conftest import Ended, RunHvdft
from rich.console import Console
from rich.table import Table

from hvd_ft.native.logs import EdgeEnd, PairOfRanks
from hvd_ft.reports.log_show import (
    Logs,
    Node,
    op_log_line,
    pairs_table,
    ring_table,
    tuned_lines,
)


def lines(table: Table) -> list[str]:
    console = Console(width=140)
    with console.capture() as captured:
        console.print(table)
    return [line.strip() for line in captured.get().splitlines()]


def test_an_edge_is_shown_by_its_two_ends() -> None:
    ahead = EdgeEnd(7, 11, ("ALLGATHER", 0, 3))
    ring = [
        Node(0, EdgeEnd(7, 9, ("ALLGATHER", 0, 1)), ahead),
        Node(4, EdgeEnd(7, 7, ("REDUCE_SCATTER", 1, 3)), EdgeEnd(6, 5, None)),
        Node(6, EdgeEnd(7, 0, ("REDUCE_SCATTER", 0, 0)), ahead),
    ]
    _, first, second, third = lines(ring_table(ring))
    assert first.startswith("node of rank 0 → 4")
    assert first.index("op 7, ALLGATHER step 0 segment 3") < first.index(
        "op 7, REDUCE_SCATTER step 1 segment 3"
    )
    assert "op 6, position 5" in second
    assert "op 7, its beginning" in second
    assert third.startswith("node of rank 6 → 0")
    assert "ALLGATHER step 0 segment 1" in third
    assert str(EdgeEnd(8, 2, ("GATHER", 2, 0))) == "op 8, GATHER round 2"


def test_messages_of_a_pair() -> None:
    _, line = lines(pairs_table([PairOfRanks(3, 0, 12, 10, 7, 3 << 19)]))
    assert line.split() == ["rank", "3", "→", "0", "12", "10", "2", "7", "1.5"]


def test_what_autotuning_has_changed() -> None:
    changes = [(0, "tunes A to 4"), (77, "tunes A to 32, the best")]
    assert tuned_lines(changes) == ["  op 0 tunes A to 4", "  op 77 tunes A to 32, the best"]


@pytest.mark.parametrize(
    ("logs", "line"),
    [
        (Logs(0, 0, "", (), ()), "op log: 0 ops, of which 0 are held"),
        (Logs(9, 2, "A\nB", (), ()), "op log: 9 ops, of which 2 are held; op 8: A and 1 more"),
        (Logs(9, 0, "", (), ()), "op log: 9 ops, of which 0 are held"),
    ],
)
def test_the_head_of_the_op_log(logs: Logs, line: str) -> None:
    assert op_log_line(logs) == line


RUNNING = """\
import os, subprocess, sys
import numpy as np
from hvd_ft.p2p import ft_recv, ft_send, rank

if rank() == 1:
    for tag in range(3):
        ft_send(np.ones(1 << 19, np.float32), 0, tag)
    ft_recv(None, 0)
else:
    ft_recv(None, 1, 2)
    for job in ([], [os.environ["HOROVOD_FT_JOB"]], [os.environ["HOROVOD_FT_DIR"]]):
        subprocess.run([sys.executable, "-m", "hvd_ft.cli", "log", "show", *job], check=True)
    ft_send(np.ones(1), 1)
"""


@pytest.mark.shows
def test_a_running_job(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script = tmp_path / "running.py"
    script.write_text(RUNNING)
    ended = run_hvdft(["run", "-np", "2", sys.executable, str(script)])
    assert ended.code == 0, ended.err
    shown = [line.strip() for line in ended.out.splitlines()]
    assert shown.count("op log: 0 ops, of which 0 are held") == 3
    words = [line.split() for line in shown if line.startswith("rank 1 → 0")]
    assert words[0][4:] == ["3", "1", "2", "0", "6.0"]
    assert len(words) == 3


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ([], "which job? Running on this node with arenas in {arena_dir}: none; give its id"),
        (["abc"], "there is no job abc: {arena_dir}/hvdft-"),
        (["../x"], "there is no job ../x: ../x has no node.arena"),
        (["a b"], "'a b' is not a job id"),
    ],
)
def test_no_such_job(run_hvdft: RunHvdft, arena_dir: Path, job: list[str], said: str) -> None:
    ended: Ended = run_hvdft(["log", "show", *job])
    assert ended.code == 2
    assert said.format(arena_dir=arena_dir) in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_directory_that_is_no_jobs(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    (tmp_path / "node.arena").write_bytes(b"x" * 4096)
    os.chmod(tmp_path / "node.arena", 0o600)
    ended = run_hvdft(["log", "show", str(tmp_path)])
    assert ended.code == 2
    assert "is not an arena of hvd_ft" in ended.err
