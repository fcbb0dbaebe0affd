"""Each sample goes to one rank once, whatever number of ranks there is at each step."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hvd_ft.worker.sharding import epoch_order, shard, steps_left

SAMPLES = st.integers(1, 80)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=40)  # at each step, in turn
BATCH = st.integers(1, 7)


def dealt(samples: int, sizes: list[int], batch: int, drop: bool) -> tuple[list[int], int]:
    """Deals an epoch out; returns all indices in the order of steps and ranks, and the last size.

    Every rank is asked, as each works out its part by itself.
    """
    order = epoch_order(samples, 3, 1)
    given_out: list[int] = []
    position = step = size = 0
    while True:
        size = sizes[step % len(sizes)]
        if not steps_left(samples, position, batch * size, drop):
            return given_out, size
        end = min(samples, position + batch * size)
        parts = [shard(order, position, end, rank, size) for rank in range(size)]
        assert len({len(part) for part in parts}) == 1, "all ranks have as many"
        assert 0 < len(parts[0]) <= batch
        assert len(parts[0]) == batch or end == samples
        given_out += np.concatenate(parts).tolist()
        position, step = end, step + 1


@given(SAMPLES, SIZES, BATCH)
def test_each_sample_once(samples: int, sizes: list[int], batch: int) -> None:
    indices, _ = dealt(samples, sizes, batch, drop=False)
    extra = len(indices) - samples
    assert 0 <= extra < max(sizes)
    again = [int(index) for index in np.resize(epoch_order(samples, 3, 1), extra)]
    assert Counter(indices) == Counter(range(samples)) + Counter(again)


@given(SAMPLES, SIZES, BATCH)
def test_no_sample_twice_if_the_remainder_is_dropped(
    samples: int, sizes: list[int], batch: int
) -> None:
    indices, size = dealt(samples, sizes, batch, drop=True)
    assert max(Counter(indices).values(), default=1) == 1
    assert samples - len(indices) < batch * size
    assert len(indices) == 0 or set(indices) <= set(range(samples))


@given(SAMPLES, st.integers(1, 9), BATCH, st.data())
def test_what_is_left_is_what_the_steps_will_have(
    samples: int, size: int, batch: int, data: st.DataObject
) -> None:
    """So a pipeline that reads ahead has the batches that single draws would have."""
    begin = data.draw(st.integers(0, samples))
    order = epoch_order(samples, 0, 7)
    for rank in range(size):
        steps = steps_left(samples, begin, batch * size, drop_remainder=False)
        ends = [begin + (n + 1) * batch * size for n in range(steps)]
        each = [shard(order, end - batch * size, end, rank, size) for end in ends]
        rest = shard(order, begin, samples, rank, size)
        assert np.concatenate([*each, rest[:0]]).tolist() == rest.tolist()
        assert len(rest) == steps_left(samples, begin, size, drop_remainder=False)


def test_an_epochs_order_is_its_own_and_stays() -> None:
    """A job that continues with another NumPy has to deal out the same."""
    assert epoch_order(8, 0, 0).tolist() == [2, 4, 3, 6, 5, 0, 1, 7]
    assert epoch_order(8, 1, 0).tolist() == [1, 3, 7, 6, 0, 4, 2, 5]
    assert epoch_order(8, 0, 1).tolist() == [5, 0, 1, 4, 2, 6, 3, 7]
    assert epoch_order(4, 9, None).tolist() == [0, 1, 2, 3]
    assert epoch_order(4, 9, None).dtype == epoch_order(4, 9, 3).dtype == np.int64


def test_a_last_step_that_cannot_be_divided() -> None:
    order = epoch_order(7, 0, None)
    assert [shard(order, 4, 7, rank, 4).tolist() for rank in range(4)] == [[4], [5], [6], [0]]
    one = epoch_order(1, 0, None)
    assert [shard(one, 0, 1, rank, 3).tolist() for rank in range(3)] == [[0], [0], [0]]
