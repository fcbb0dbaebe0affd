"""Ranks that leave: what Horovod is told, what is said, and what a drill asks for."""

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.worker import rosters
from hvd_ft.worker.rosters import LeaveDrills


class Ranks:
    """A worker of a job of four ranks, whose second roster has two."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.asked: list[list[int]] = []
        self.quiet = False

    def present(self, roster: int) -> list[int]:
        return [0, 1, 2, 3] if roster == 0 else [0, 2]

    def await_quiet(self) -> None:
        self.quiet = True

    def ask_to_leave(self, ranks: range) -> None:
        self.asked.append(list(ranks))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rosters that Horovod was told to begin."""
    numbers: list[int] = []
    monkeypatch.setattr(rosters, "_begin", lambda number: not numbers.append(number))
    return numbers


def test_ranks_that_stay_go_on(begun: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 2):
        ranks = Ranks(rank)
        assert rosters.begin(ranks, 1, 21)  # type: ignore[arg-type]
        assert ranks.quiet, "no tensor is pending"
    assert begun == [1, 1]
    line = "from step 21 on the job has 2 ranks instead of 4: ranks 1, 3 left"
    assert capsys.readouterr().err == f"hvdft: {line}\n"


def test_a_rank_that_leaves_says_so(begun: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert not rosters.begin(Ranks(3), 1, 21)  # type: ignore[arg-type]
    assert begun == [1]
    assert capsys.readouterr().err == "hvdft: rank 3 leaves the job at step 21\n"


def test_without_horovod_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for begin in (None, lambda number: False):
        monkeypatch.setattr(rosters, "_begin", begin)
        with pytest.raises(HvdFtError, match="Horovod was shut down"):
            rosters.begin(Ranks(0), 1, 21)  # type: ignore[arg-type]


def test_a_drill_asks_once(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Ranks(0)
    drills = LeaveDrills("12:-1:20:l:0:leave=1,step=20;12:-1:5:s:9:rank=0,step=5")
    for step in (19, 20, 20, 5):
        drills.strike(step, ranks)  # type: ignore[arg-type]
    assert ranks.asked == [[1]]
    assert capsys.readouterr().err == "hvdft: drill: leave=1,step=20\n"
