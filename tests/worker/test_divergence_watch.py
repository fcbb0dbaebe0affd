"""Rank 0 compares the fingerprints of all ranks as they come, and waits for nobody for long."""

import threading
from typing import Any

import numpy as np
import pytest

from hvd_ft.native.types import Divergence
from hvd_ft.worker import divergence
from hvd_ft.worker.divergence import DivergenceWatch, describe, divergence_watch, variables_of
from hvd_ft.worker.divergence_rule import Kind, Variable
from hvd_ft.worker.shared_contents import fingerprints

HANG_SECONDS = 60
WEIGHT = [Variable("w", Kind.WEIGHT)]


class Ranks:
    """Rank 0's worker, in a job of three."""

    rank, size = 0, 3

    def present(self) -> list[int]:
        return [0, 1, 2]

    def __init__(self) -> None:
        self.stop_code = -1
        self.away_looks = 0  # how often a rank is still away
        self.told: list[Divergence] = []
        self.fatal_lines: list[str] = []
        self._prints: dict[tuple[int, int, int], bytes | None] = {}
        self._rung = threading.Condition()
        self._ticket = 0

    def publish(self, rank: int, cut: int, contents: int | None, loop: int = 0) -> None:
        """A rank comes to a cut; without contents it never will."""
        arrays = {"0:w": np.array(contents)}
        prints = None if contents is None else fingerprints(arrays, cut, cut)
        with self._rung:
            self._prints[rank, loop, cut] = prints
            self._ticket += 1
            self._rung.notify_all()

    def published(self, rank: int, loop: int, cut: int) -> tuple[bool, bytes | None]:
        key = (rank, loop, cut)
        return key in self._prints, self._prints.get(key)

    def snapshot_ticket(self) -> int:
        return self._ticket

    def snapshot_wait(self, ticket: int, seconds: float) -> None:
        with self._rung:
            self._rung.wait_for(lambda: self._ticket != ticket, seconds)

    def any_away(self) -> bool:
        self.away_looks -= 1
        return self.away_looks >= 0

    def diverged(self, found: Divergence) -> None:
        self.told.append(found)

    def fatal(self, line: str) -> None:
        self.fatal_lines.append(line)


@pytest.fixture
def ranks() -> Ranks:
    return Ranks()


@pytest.fixture
def watch(ranks: Any, monkeypatch: pytest.MonkeyPatch) -> DivergenceWatch:
    monkeypatch.setattr(divergence, "WAIT_SECONDS", HANG_SECONDS)
    return DivergenceWatch(ranks, stop=False)


def compared(watch: DivergenceWatch) -> None:
    """Waits until nothing is left to be compared."""
    with watch._changed:
        assert watch._changed.wait_for(lambda: not watch._cuts, HANG_SECONDS)


def cut(watch: DivergenceWatch, ranks: Ranks, number: int, contents: list[int]) -> None:
    watch.expect(0, number, number * 10, WEIGHT)
    for rank, each in enumerate(contents):
        ranks.publish(rank, number, each)


def test_a_divergence_is_told(
    watch: DivergenceWatch, ranks: Ranks, capsys: pytest.CaptureFixture[str]
) -> None:
    cut(watch, ranks, 1, [1, 1, 1])
    compared(watch)
    cut(watch, ranks, 2, [2, 3, 2])
    watch.finish()
    assert ranks.told == [Divergence("w", 20, (1,), 1, 10)]
    assert capsys.readouterr().err == f"hvdft: {describe(ranks.told[0], 3)}\n"
    assert ranks.fatal_lines == []


def test_it_can_stop_the_job(ranks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    watch = DivergenceWatch(ranks, stop=True)
    cut(watch, ranks, 1, [1, 1, 1])
    compared(watch)
    cut(watch, ranks, 2, [2, 3, 2])
    compared(watch)
    assert ranks.fatal_lines == [describe(ranks.told[0], 3)]
    assert capsys.readouterr().err == "", "the launcher says it"


def test_the_next_cut_waits_for_the_one_before(watch: DivergenceWatch, ranks: Ranks) -> None:
    watch.expect(0, 1, 10, WEIGHT)
    for rank in (0, 1):
        ranks.publish(rank, 1, 1)
    watch.expect(0, 2, 20, WEIGHT)
    watch.expect(0, 3, 30, WEIGHT)  # instead of cut 2
    ranks.publish(2, 1, 1)
    for rank, contents in enumerate([2, 2, 3]):
        ranks.publish(rank, 3, contents)
    watch.finish()
    assert ranks.told == [Divergence("w", 30, (2,), 1, 10)]


def test_a_cut_to_which_a_rank_never_comes_is_left_out(
    watch: DivergenceWatch, ranks: Ranks
) -> None:
    cut(watch, ranks, 1, [1, 1, 1])
    compared(watch)
    watch.expect(0, 2, 20, WEIGHT)
    ranks.publish(0, 2, 1)
    ranks.publish(2, 2, None)
    compared(watch)
    cut(watch, ranks, 3, [1, 1, 2])
    watch.finish()
    assert ranks.told == [Divergence("w", 30, (2,), 1, 10)]


def test_a_cut_that_this_rank_leaves_out(watch: DivergenceWatch, ranks: Ranks) -> None:
    cut(watch, ranks, 1, [1, 1, 1])
    compared(watch)
    watch.expect(0, 2, 20, WEIGHT)
    watch.withdraw(0, 2)
    compared(watch)
    ranks.publish(1, 2, 5)  # rings: the thread looks again
    cut(watch, ranks, 3, [1, 1, 2])
    watch.finish()
    assert len(ranks.told) == 1


def test_a_cut_of_another_loop_that_is_left_out(watch: DivergenceWatch, ranks: Ranks) -> None:
    """Each loop counts its cuts from the beginning."""
    cut(watch, ranks, 1, [1, 1, 1])
    compared(watch)
    watch.expect(0, 2, 20, WEIGHT)
    for rank in (0, 1):
        ranks.publish(rank, 2, 2)
    watch.expect(1, 2, 20, WEIGHT)
    watch.withdraw(1, 2)
    ranks.publish(2, 2, 3)
    compared(watch)
    assert ranks.told == [Divergence("w", 20, (2,), 1, 10)]


def test_the_end_is_not_awaited_where_nothing_could_be_told(
    watch: DivergenceWatch, ranks: Ranks
) -> None:
    watch.expect(0, 1, 10, WEIGHT)  # to which nobody comes
    watch.finish()
    assert watch._cuts, "it did not wait"


def test_the_end_is_awaited_once_in_vain(
    watch: DivergenceWatch, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(watch, ranks, 1, [1, 1, 1])
    compared(watch)
    watch.expect(0, 2, 20, WEIGHT)
    monkeypatch.setattr(divergence, "WAIT_SECONDS", 0.01)
    watch.finish()
    assert watch._cuts
    monkeypatch.setattr(divergence, "WAIT_SECONDS", "a wait of this length fails")
    watch.finish()


def test_two_cuts_at_the_end_can_tell_something(watch: DivergenceWatch, ranks: Ranks) -> None:
    watch.expect(0, 1, 10, WEIGHT)
    watch.expect(0, 2, 20, WEIGHT)
    late = threading.Thread(
        target=lambda: [
            ranks.publish(rank, number, contents)
            for number, all_ranks in ((1, [1, 1, 1]), (2, [1, 1, 2]))
            for rank, contents in enumerate(all_ranks)
        ]
    )
    late.start()
    watch.finish()
    late.join()
    assert ranks.told == [Divergence("w", 20, (2,), 1, 10)]


def test_a_rank_that_is_away_at_the_end_is_awaited(
    watch: DivergenceWatch, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(watch, ranks, 1, [1, 1, 1])
    compared(watch)
    watch.expect(0, 2, 20, WEIGHT)
    for rank in (0, 1):
        ranks.publish(rank, 2, 2)
    monkeypatch.setattr(divergence, "WAIT_SECONDS", 0.001)
    ranks.away_looks = 3
    asked = ranks.any_away

    def any_away() -> bool:
        away = asked()
        if ranks.away_looks == 0:
            ranks.publish(2, 2, 3)
            monkeypatch.setattr(divergence, "WAIT_SECONDS", HANG_SECONDS)
        return away

    monkeypatch.setattr(ranks, "any_away", any_away)
    watch.finish()
    assert ranks.told == [Divergence("w", 20, (2,), 1, 10)]


def test_a_job_that_stops_is_not_awaited(watch: DivergenceWatch, ranks: Ranks) -> None:
    cut(watch, ranks, 1, [1, 1, 1])
    compared(watch)
    ranks.stop_code = 1
    watch.expect(0, 2, 20, WEIGHT)
    watch.finish()
    assert not watch._cuts


@pytest.mark.parametrize(
    ("rank", "size", "policy", "there"),
    [
        (0, 2, "", True),
        (0, 2, "warn", True),
        (0, 2, "stop", True),
        (0, 2, "off", False),
        (1, 2, "warn", False),
        (0, 1, "warn", False),
    ],
)
def test_who_compares(
    monkeypatch: pytest.MonkeyPatch, rank: int, size: int, policy: str, there: bool
) -> None:
    monkeypatch.setenv("HOROVOD_FT_ON_DIVERGENCE", policy)
    worker: Any = type("Worker", (), {"rank": rank, "size": size})
    found = divergence_watch(worker)
    assert (found is not None) == there
    assert found is None or found._stop == (policy == "stop")


def test_names_are_the_users() -> None:
    names = ["0:dense/kernel:0", "12:dense/kernel:0", "own"]
    assert variables_of(names, {"12:dense/kernel:0": Kind.OWN}) == [
        Variable("dense/kernel:0", Kind.OTHER),
        Variable("dense/kernel:0", Kind.OWN),
        Variable("own", Kind.OTHER),
    ]


@pytest.mark.parametrize(
    ("found", "begin"),
    [
        (
            Divergence("w", 30, (2,), 1, 20),
            "w: rank 2 differs from the others at step 30, all being equal at step 20: ",
        ),
        (
            Divergence("w", 30, (0, 1), 2, 0),
            "w and 1 more variable: ranks 0 and 1 differ from the others at step 30, all "
            "being equal before: ",
        ),
        (
            Divergence("w", 30, (0, 1, 2), 1, 20),
            "w: ranks 0, 1 and 2 differ from each other at step 30, ",
        ),
    ],
)
def test_the_line(found: Divergence, begin: str) -> None:
    assert describe(found, 3).startswith(begin)
    assert "\n" not in describe(found, 3)
