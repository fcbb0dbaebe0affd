"""`ElasticSampler` deals each sample out once, to however many ranks there are at each step."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from sampled_script import (  # noqa: E402, F401
    SAMPLES,
    Ranks,
    X,
    changing_ranks,
    load,
)

from hvd_ft.errors import HvdFtError  # noqa: E402
from hvd_ft.tensorflow import sampled_data  # noqa: E402
from hvd_ft.tensorflow.sampled_data import sampled  # noqa: E402
from hvd_ft.tensorflow.sampler import ElasticSampler  # noqa: E402
from hvd_ft.worker.sharding import epoch_order, shard  # noqa: E402


def of_every_rank(ranks: Ranks, size: int, draw: Callable[[ElasticSampler], Any]) -> list[Any]:
    """What each of several ranks draws from a sampler of its own, all with the same state."""
    drawn = []
    for rank in range(size):
        ranks.become(rank, size)
        drawn.append(draw(ElasticSampler(SAMPLES, seed=5)))
    return drawn


# ------------------------------------------------------------------ by itself


def test_it_is_used_as_horovods_for_torch(ranks: Ranks) -> None:
    """Two steps with 3 ranks; the state goes to 2 ranks, which get what is left."""

    def begin(sampler: ElasticSampler) -> tuple[list[int], dict[str, Any]]:
        sampler.set_epoch(1)
        assert len(sampler) == 8
        indices = list(sampler)
        assert len(indices) == 8
        for step in range(2):
            sampler.record_batch(step, 2)
        assert len(sampler) == 4
        return indices[:4], sampler.state_dict()

    before = of_every_rank(ranks, 3, begin)
    states = [state for _, state in before]
    assert states[0] == states[1] == states[2]

    def go_on(sampler: ElasticSampler) -> list[int]:
        sampler.load_state_dict(states[0])
        sampler.reset()
        return list(sampler)

    after = of_every_rank(ranks, 2, go_on)
    assert {len(indices) for indices in after} == {6}
    order = epoch_order(SAMPLES, 1, 5).tolist()
    assert sorted(chain(*(indices for indices, _ in before))) == sorted(order[:12])
    assert sorted(chain(*after)) == sorted([*order[12:], order[0]])


def test_without_shuffling_and_of_any_data_set() -> None:
    assert list(ElasticSampler(range(5), shuffle=False)) == [0, 2, 4]
    assert list(ElasticSampler(np.zeros((4, 2)), shuffle=False)) == [0, 2]
    assert list(ElasticSampler(tf.data.Dataset.range(3), shuffle=False)) == [0, 2]
    sampler = ElasticSampler(6, shuffle=False)
    sampler.set_epoch(4)
    assert list(sampler) == [0, 2, 4]


def test_each_epoch_has_an_order_of_its_own() -> None:
    sampler = ElasticSampler(SAMPLES)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(ElasticSampler(SAMPLES, seed=1)) != first


def test_a_draw_goes_to_the_ranks_that_there_are(ranks: Ranks) -> None:
    sampler = ElasticSampler(SAMPLES, seed=5)
    order = epoch_order(SAMPLES, 0, 5)
    drawn = sampler.batches(2)
    assert next(drawn).tolist() == shard(order, 0, 4, 0, 2).tolist()
    ranks.become(2, 3)  # in the middle of that step
    assert sampler.processed_num == 4
    assert next(drawn).tolist() == shard(order, 4, 10, 2, 3).tolist()
    ranks.become(0, 1)
    assert sampler.steps(2) == 7
    assert sampler.steps(2, drop_remainder=True) == 6
    assert [len(indices) for indices in drawn] == [2, 2, 2, 2, 2, 2, 1]
    assert sampler.processed_num == SAMPLES
    assert list(drawn) == list(sampler) == []


def test_iteration_goes_on_behind_what_is_recorded(ranks: Ranks) -> None:
    sampler = ElasticSampler(SAMPLES, seed=5)
    order = epoch_order(SAMPLES, 0, 5)
    drawn = iter(sampler)
    assert [next(drawn), next(drawn)] == shard(order, 0, 4, 0, 2).tolist()
    ranks.become(0, 3)  # in the middle of the step, which was dealt to 2
    sampler.record_batch(0, 2)
    assert sampler.processed_num == 4
    assert list(drawn) == shard(order, 4, SAMPLES, 0, 3).tolist()


def test_misuse_is_named() -> None:
    with pytest.raises(HvdFtError, match="nothing to deal out"):
        ElasticSampler([])
    with pytest.raises(HvdFtError, match="cannot shuffle by seed -1"):
        ElasticSampler(3, seed=-1)
    for draw in (ElasticSampler.dataset, lambda sampler, size: next(sampler.batches(size))):
        with pytest.raises(HvdFtError, match="a step cannot have 0 samples"):
            draw(ElasticSampler(3), 0)
    other = ElasticSampler(SAMPLES, seed=5).state_dict()
    with pytest.raises(HvdFtError, match=r"23 samples, seed 5, but .* with 23 samples, not shuff"):
        ElasticSampler(SAMPLES, shuffle=False).load_state_dict(other)
    with pytest.raises(HvdFtError, match="with 22 samples, seed 5"):
        ElasticSampler(22, seed=5).load_state_dict(other)


# ------------------------------------------------------------------ as a tf.data.Dataset


def test_a_dataset_has_the_same_batches(ranks: Ranks) -> None:
    for drop in (False, True):
        expected = [b.tolist() for b in ElasticSampler(SAMPLES).batches(4, drop)]
        dataset = ElasticSampler(SAMPLES).dataset(4, drop)
        assert [batch.numpy().tolist() for batch in dataset] == expected
        assert dataset.element_spec.shape.as_list() == [4 if drop else None]
    assert len(expected) == 2


def test_what_is_read_ahead_does_not_count(ranks: Ranks) -> None:
    sampler = ElasticSampler(SAMPLES, seed=5)
    dataset = sampler.dataset(2).map(load, num_parallel_calls=2).prefetch(4)
    order = epoch_order(SAMPLES, 0, 5)
    data = sampled(dataset)
    assert data is not None
    begin = 0
    for step, (x, indices) in enumerate(data.batches()):
        end = min(SAMPLES, begin + 2 * ranks.size)
        assert indices.numpy().tolist() == shard(order, begin, end, ranks.rank, ranks.size).tolist()
        np.testing.assert_array_equal(x, X[indices])
        assert sampler.processed_num == end
        begin = end
        if step == 1:
            ranks.become(1, 3)
        if step == 2:
            ranks.become(0, 1)
    assert begin == SAMPLES


def test_an_iterator_is_dealt_where_its_first_batch_is_drawn(ranks: Ranks) -> None:
    """As Keras makes one that it does not draw from."""
    sampler = ElasticSampler(8, shuffle=False)
    iterator = iter(sampler.dataset(2))
    ranks.become(1, 2)
    sampler.record_batch(0, 2)
    assert next(iterator).numpy().tolist() == [5, 7]


def test_what_may_follow(capsys: pytest.CaptureFixture[str]) -> None:
    base = ElasticSampler(SAMPLES).dataset(4)
    options = tf.data.Options()
    for dataset in (
        base,
        base.map(load).prefetch(2).with_options(options),
        base.map(load, num_parallel_calls=2),
        base.unbatch().map(load).batch(4),
        base.unbatch().map(load).batch(4, num_parallel_calls=2).map(lambda x, _: x),
        base.unbatch().map(tf.range).padded_batch(4),
    ):
        assert sampled(dataset) is not None
    assert sampled(tf.data.Dataset.range(3).map(lambda i: i).batch(2)) is None
    assert sampled([1, 2]) is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("follow", "named"),
    [
        (lambda base: base.shuffle(4), "ShuffleDataset"),
        (lambda base: base.repeat(2), "RepeatDataset"),
        (lambda base: base.map(load).take(2), "TakeDataset"),
        (lambda base: base.batch(2), "BatchDataset"),
        (lambda base: base.unbatch().batch(3), "BatchDataset"),
        (lambda base: base.unbatch().batch(4, drop_remainder=True), "BatchDataset"),
        (lambda base: base.unbatch().map(load), "unbatch without batch"),
        (lambda base: tf.data.Dataset.zip((base, base)), "ZipDataset"),
        (lambda base: tf.data.Dataset.zip((tf.data.Dataset.range(9), base)), "ZipDataset"),
    ],
)
def test_what_cannot_be_counted_is_named(follow: Callable[[Any], Any], named: str) -> None:
    with pytest.raises(HvdFtError, match=f"^{named} stands behind ElasticSampler.dataset"):
        sampled(follow(ElasticSampler(SAMPLES).dataset(4)))


def test_random_numbers_in_the_pipeline_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    base = ElasticSampler(SAMPLES).dataset(4)
    sampled_data._say_what_is_drawn_again.cache_clear()
    sampled(base.map(lambda i: i + tf.random.stateless_uniform([], [1, 2], 0, 5, tf.int64)))
    assert capsys.readouterr().err == ""
    for draws in (tf.random.uniform, tf.random.get_global_generator().normal):
        sampled_data._say_what_is_drawn_again.cache_clear()
        sampled(base.map(lambda i, draws=draws: draws(tf.shape(i))))
        assert "draws random numbers in the pipeline" in capsys.readouterr().err
