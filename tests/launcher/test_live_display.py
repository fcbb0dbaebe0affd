"""The lines of `hvdft run` that show a running job, on a terminal and in a file."""

import io
import time

import pytest
from rich.console import Console

from hvd_ft.launcher import live_display
from hvd_ft.native.types import Divergence, Memory, State, Status


class TwoRanks:
    """A job in which rank 1 is on its way back."""

    size = 2
    ranks = (
        Status(State.WAITING, 0, 11, 40, 90, time.monotonic_ns()),
        Status(State.REPLAYING, 1, 12, 38, 88, time.monotonic_ns()),
    )

    def __init__(self, *found: Divergence) -> None:
        self._found = found

    @property
    def divergences(self) -> int:
        return len(self._found)

    def divergence(self, number: int) -> Divergence | None:
        return self._found[number]

    def status(self, rank: int) -> Status:
        return self.ranks[rank]

    def memory(self, first_rank: int, *, most: bool = False) -> Memory | None:
        return memory_of(50 if most else 40, 100) if first_rank == 0 else None


def memory_of(mib: int, limit_mib: int) -> Memory:
    """The memory of a node with 20 MiB of snapshots and 7 of log."""
    mib, limit_mib = mib << 20, limit_mib << 20
    return Memory(mib, 20 << 20, 0, 0, 9 << 20, 5 << 20, 2 << 20, 0, 0, 0, limit_mib)


DIVERGED = (Divergence("v", 20, (0, 1), 2, 10), Divergence("w", 30, (1,), 1, 20))


def test_live_lines_and_the_output_above_them() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with live_display.display(console, live=True) as shown:
        shown.update(TwoRanks(*DIVERGED))
        shown.output("\x1b[31mloss 0.5\x1b[0m [not markup]")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "loss 0.5" in text
    assert "[not markup]" in text
    for part in (
        "rank 0",
        "waiting",
        "step 40",
        "rank 1",
        "replaying",
        "restarted once",
        "w diverged on rank 1 at step 30 (1 before)",
    ):
        assert part in text
    line = "memory: state 20 MiB, log 7 MiB, now 40 MiB, at most 50 MiB of 100 MiB"
    assert line in " ".join(text.split())


class ThreeNodes(TwoRanks):
    """A job of which rank 1's node is the fullest; rank 2's has not sent anything."""

    size = 3

    def memory(self, first_rank: int, *, most: bool = False) -> Memory | None:
        return [memory_of(60, 400), memory_of(50, 100), None][first_rank]


class NotYet(TwoRanks):
    """A job whose memory is not known."""

    def memory(self, first_rank: int, *, most: bool = False) -> Memory | None:
        return None


def test_the_fullest_node_is_shown() -> None:
    line = live_display.memory_line(ThreeNodes())
    assert line.startswith("memory (rank 1's node, the fullest of 2): state 20 MiB, log")
    assert line.endswith("at most 50 MiB of 100 MiB")
    assert live_display.memory_line(NotYet()) == ""


def test_plain_lines_come_only_with_a_change() -> None:
    console = Console(file=io.StringIO(), width=80)
    with live_display.display(console, live=False) as shown:
        shown.update(TwoRanks())
        shown.update(TwoRanks(*DIVERGED[:1]))
        shown.update(TwoRanks(*DIVERGED))
        shown.update(TwoRanks(*DIVERGED))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "hvdft: rank 0 (incarnation 0) is waiting at step 40",
        "hvdft: rank 1 (incarnation 1) is replaying at step 38",
        "hvdft: v and 1 more variable diverged on ranks 0 and 1 at step 20",
        "hvdft: w diverged on rank 1 at step 30",
    ]


class Beginning(NotYet):
    """A job that has gone on from a checkpoint, or whose script has failed before its loop."""

    ranks = (
        Status(State.RUNNING, 0, 11, 0, 90, time.monotonic_ns()),
        Status(State.DONE, 0, 12, 0, 0, time.monotonic_ns()),
    )


def test_a_rank_without_a_step_is_not_at_step_0(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80)
    with live_display.display(console, live=False) as shown:
        shown.update(Beginning())
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "hvdft: rank 0 (incarnation 0) is running",
        "hvdft: rank 1 (incarnation 0) has ended",
    ]
    console.file.truncate(0)
    console.print(live_display.ranks_table(Beginning(), time.monotonic_ns()))
    assert "step" not in console.file.getvalue()
