"""Ranks that leave: what Horovod is told, what is said, and what a drill asks for."""

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, incarnation

from hvd_ft.errors import HvdFtError
from hvd_ft.worker import rosters
from hvd_ft.worker.rosters import LeaveDrills
from hvd_ft.worker.snapshot_format import encode
from hvd_ft.worker.training_loop import TrainingLoop


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


class Growing(Ranks):
    """A worker of a job of two ranks, whose third roster has three again."""

    def present(self, roster: int) -> list[int]:
        return [0, 2, 3] if roster == 3 else super().present(roster)


def test_ranks_that_return_are_told_of(
    begun: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 2):
        assert rosters.begin(Growing(rank), 3, 30)  # type: ignore[arg-type]
    line = "from step 30 on the job has 3 ranks instead of 2: rank 3 returned"
    assert capsys.readouterr().err == f"hvdft: {line}\n"


def contents() -> rosters.Contents:
    return {"w": np.arange(3)}, {"step": 30, "values": [1], "rng": {"python": 7}}


def test_ranks_that_return_are_given_rank_0_s_state(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    def broadcast(data: bytes) -> bytes:
        sent.append(data)
        return sent[0]

    monkeypatch.setattr(rosters, "_broadcast", broadcast)
    for rank in (0, 2):
        rosters.hand_over(Growing(rank), 3, contents)  # type: ignore[arg-type]
    rosters.hand_over(Growing(0), 2, contents)  # type: ignore[arg-type]
    assert len(sent) == 2 and sent[1] == b"", "only where ranks return, and only rank 0's"
    given = rosters.HandedOver()
    arrays, values = given.read(0)
    assert given.step == 30 and arrays["w"].tolist() == [0, 1, 2]
    assert values == {"step": 30, "values": [1], "rng": {}}, "generators are its own"


def test_a_rank_cannot_return_without_horovod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rosters, "_broadcast", None)
    with pytest.raises(HvdFtError, match=r"call hvd.init\(\) before the training loop"):
        rosters.HandedOver()


class Due(FakeWorker):
    """A worker of a job of two ranks, for which a roster without rank 1 is due."""

    def roster_due(self, loop: int) -> int:
        return 1

    def present(self, roster: int = 1) -> list[int]:
        return [0] if roster else [0, 1]

    def await_quiet(self) -> None:
        pass

    def returns(self, loop: int) -> bool:
        return self.incarnation > 0

    def await_return(self, loop: int) -> bool:
        return True


def test_a_snapshot_is_taken_where_a_roster_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    with incarnation(FakeArena(), 0):
        monkeypatch.setattr(rosters, "_begin", lambda number: True)
        loop = TrainingLoop(Due(FakeArena(), 0), 1000, 0.1)
        loop.begin()
        loop.set_step(3)
        assert not loop.wants_snapshot(3)
        assert loop.begin_roster(3, contents)
        assert loop.wants_snapshot(3)
        loop.write(3, contents)
        assert not loop.wants_snapshot(3)


def test_a_rank_that_returns_begins_its_roster_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has done so before it got the state of the boundary at which it goes on."""
    begun: list[int] = []
    with incarnation(FakeArena(), 1):
        monkeypatch.setattr(rosters, "_begin", lambda number: not begun.append(number))
        monkeypatch.setattr(rosters, "_broadcast", lambda _: b"".join(encode(*contents())))
        loop = TrainingLoop(Due(FakeArena(), 1), 1000, 0.1)
        assert loop.begin() is not None and loop.returned
        loop.jump()
        for step, rosters_begun in ((30, []), (31, [1])):
            loop.set_step(step)
            assert loop.begin_roster(step, contents) == bool(rosters_begun)
            assert begun == rosters_begun


@pytest.mark.parametrize("number", [1, 2])
def test_every_restarted_process_completes_what_was_delivered(number: int) -> None:
    """Parts that a dead process has delivered may have been awaited by nobody since."""
    settled: list[int] = []

    class Restarted(FakeWorker):
        def snapshot_settle(self, loop: int) -> bool:
            settled.append(loop)
            return True

    with incarnation(FakeArena(), number):
        loop = TrainingLoop(Restarted(FakeArena(), number), 1000, 0.1)
        loop.begin()
        for step in (1, 2):
            loop.set_step(step)
    assert settled == [0, 0]
