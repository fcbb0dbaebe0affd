"""Where a loop goes on after a commit, in whatever way the script counts its batches."""

# ruff: noqa: B020 (that is how such scripts are written)

from collections.abc import Callable, Iterator

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.worker.elastic_position import ElasticPosition

EPOCHS, BATCHES = 3, 4


class State:
    """What a script sees; collectives are counted, and what they train with is noted."""

    def __init__(self, after: "tuple[State, tuple[int, int]] | None" = None) -> None:
        self.op = 7
        self.trained: list[tuple[int, int]] = []
        self._epoch, self._batch = (0, 0) if after is None else after[1]
        counts = after is not None and after[0].position.counts_batches
        committed = None if after is None else after[1]
        self.position = ElasticPosition(self._epoch, self._batch, self.op, counts, committed)

    @property
    def epoch(self) -> int:
        return self._epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._epoch = value
        self.position.assign_epoch(value, self.op)

    @property
    def batch(self) -> int:
        return self._batch

    @batch.setter
    def batch(self, value: int) -> None:
        self._batch = value
        self.position.assign_batch(value, self.op)

    def train(self, epoch: int, batch: int) -> None:
        self.trained.append((epoch, batch))
        self.op += 2

    def measure(self, epoch: int) -> None:
        self.trained.append((epoch, -1))
        self.op += 1


Script = Callable[[State], Iterator[None]]  # yields where it commits


def horovods(state: State) -> Iterator[None]:
    """As in Horovod's documentation."""
    for state.epoch in range(state.epoch, EPOCHS):
        for state.batch in range(state.batch, BATCHES):
            state.train(state.epoch, state.batch)
            yield
        state.batch = 0


def every_other(state: State) -> Iterator[None]:
    for state.epoch in range(state.epoch, EPOCHS):
        for state.batch in range(state.batch, BATCHES):
            state.train(state.epoch, state.batch)
            if state.batch % 2 == 0:
                yield
        state.measure(state.epoch)
        state.batch = 0


def with_a_commit_an_epoch(state: State) -> Iterator[None]:
    for state.epoch in range(state.epoch, EPOCHS):
        for state.batch in range(state.batch, BATCHES):
            state.train(state.epoch, state.batch)
            yield
        state.batch = 0
        state.measure(state.epoch)
        yield


def per_epoch(state: State) -> Iterator[None]:
    for state.epoch in range(state.epoch, EPOCHS):
        for state.batch in range(state.batch, BATCHES):
            state.train(state.epoch, state.batch)
        state.measure(state.epoch)
        state.batch = 0
        yield


def epochs_only(state: State) -> Iterator[None]:
    for state.epoch in range(state.epoch, EPOCHS):
        for batch in range(BATCHES):
            state.train(state.epoch, batch)
        yield


def counting_before(state: State) -> Iterator[None]:
    """As hvd.State asks for it."""
    while state.epoch < EPOCHS:
        while state.batch < BATCHES:
            state.train(state.epoch, state.batch)
            state.batch += 1
            yield
        state.measure(state.epoch)
        state.epoch += 1
        state.batch = 0


def counting_after(state: State) -> Iterator[None]:
    while state.epoch < EPOCHS:
        while state.batch < BATCHES:
            state.train(state.epoch, state.batch)
            yield
            state.batch += 1
        state.batch = 0
        state.epoch += 1
        yield


def at_the_top(state: State) -> Iterator[None]:
    for state.epoch in range(state.epoch, EPOCHS):
        for state.batch in range(state.batch, BATCHES):
            yield
            state.train(state.epoch, state.batch)
        state.batch = 0


def by_number(state: State) -> Iterator[None]:
    """As in Horovod's example with MNIST, in one long epoch; what is drawn ends with the state."""
    begin = state.batch
    for number in range(BATCHES * EPOCHS - begin):
        state.batch = begin + number
        state.train(0, state.batch)
        yield


SCRIPTS = (
    *(horovods, every_other, with_a_commit_an_epoch, per_epoch, epochs_only),
    *(counting_before, counting_after, at_the_top, by_number),
)


Commit = tuple[tuple[int, int], int, bool]  # where it goes on, what is done by then, whether sure


def commits(state: State, script: Script) -> list[Commit]:
    """Returns the commits of a script that end a step."""
    found = []
    for _ in script(state):
        if state.position.commit(state.op):
            assert state.position.committed is not None
            found.append((state.position.committed, len(state.trained), state.position.is_sure))
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_loop_goes_on_behind_any_commit(script: Script) -> None:
    whole = State()
    found = commits(whole, script)
    sure = [commit for commit in found if commit[2]]
    assert len(found) - 2 <= len(sure) < len(found), "only the first ones may not be sure"
    assert len(sure) >= EPOCHS - 1
    for point, done, _ in sure:
        again = State(after=(whole, point))
        later = commits(again, script)
        assert again.trained == whole.trained[done:]
        assert [commit[0] for commit in later] == [p for p, at, _ in sure if p > point]
        assert all(is_sure for _, _, is_sure in later)


def uncounted(state: State) -> Iterator[None]:
    for state.epoch in range(state.epoch, EPOCHS):
        for batch in range(BATCHES):
            state.train(state.epoch, batch)
            yield


def standing(state: State) -> Iterator[None]:
    for _ in range(BATCHES):
        state.batch = 0
        state.train(0, 0)
        yield


@pytest.mark.parametrize("script", [uncounted, standing], ids=lambda script: script.__name__)
def test_a_loop_that_does_not_count_is_named(script: Script) -> None:
    with pytest.raises(HvdFtError, match=r"at epoch 0, batch 0, where it was at an earlier commit"):
        commits(State(), script)


def test_a_commit_of_nothing_ends_no_step() -> None:
    state = State()
    assert len(commits(state, counting_before)) == EPOCHS * BATCHES
    state.position.commit(state.op)
    assert not state.position.commit(state.op)
    state.epoch += 1
    assert state.position.commit(state.op)
