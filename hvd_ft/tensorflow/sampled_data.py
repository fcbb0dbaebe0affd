"""A training's view of data that an ElasticSampler deals out: it counts what has been trained with.

An iterator of tf.data reads ahead, and deals its samples to the ranks that existed when its first
batch was drawn. So a training counts the batches that it has used. When the number of ranks
changes, it continues with a new iterator, which begins after these batches.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import tensorflow as tf

from hvd_ft.errors import HvdFtError
from hvd_ft.system.say import say
from hvd_ft.tensorflow.data import DataIterator
from hvd_ft.tensorflow.sampler import ElasticSampler, Source

_SAME_BATCHES = {"_MapDataset", "_ParallelMapDataset", "_PrefetchDataset", "_OptionsDataset"}
_UNBATCH = {"_UnbatchDataset", "_RestructuredDataset"}  # with a map below them
_BATCH = {"_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset"}
_RANDOM = ("Random", "Normal", "Multinomial", "Rng", "StatefulUniform")  # in names of operations


class SampledData:
    """The data of a training.

    Args:
        dataset: the data that the training uses.
        source: the sampler's dataset from which it is made, with its parameters.

    Attributes:
        sampler: the sampler that deals the data out.
    """

    def __init__(self, dataset: tf.data.Dataset, source: Source) -> None:
        self.sampler: ElasticSampler = source.sampler
        self._dataset = dataset
        self._source = source
        self._ranks: tuple[int, int] | None = None  # to which the iterator is dealt
        self._iterator: DataIterator = None

    @property
    def steps(self) -> int:
        """How many steps the epoch still has, with the present number of ranks."""
        return self.sampler.steps(self._source.batch_size, self._source.drop_remainder)

    def begin_pass(self, iterator: DataIterator) -> None:
        """Begins a pass at the sampler's position.

        Args:
            iterator: of the dataset, not drawn from yet.
        """
        self._iterator, self._ranks = iterator, self.sampler.present_ranks()

    def iterator(self) -> DataIterator:
        """Returns the iterator to draw the next step's batch from."""
        if self._ranks != self.sampler.present_ranks():
            self.begin_pass(iter(self._dataset))
        return self._iterator

    def count(self, steps: int = 1) -> None:
        """Counts steps that have been drawn from the latest iterator."""
        assert self._ranks is not None
        self.sampler.advance(steps * self._source.batch_size, self._ranks[1])

    def end_epoch(self) -> None:
        """Begins the sampler's next epoch."""
        self.sampler.set_epoch(self.sampler.epoch + 1)

    def batches(self) -> Iterator[Any]:
        """Yields the remaining batches of the epoch; counts each before it is used."""
        self.begin_pass(iter(self._dataset))
        while (batch := next(self.iterator(), None)) is not None:
            self.count()
            yield batch


def sampled(dataset: tf.data.Dataset) -> SampledData | None:
    """Returns a training's view of a dataset that is made of `ElasticSampler.dataset`, else None.

    Raises:
        HvdFtError: a batch of the dataset does not stand for a batch of indices.
    """
    if not isinstance(dataset, tf.data.Dataset) or (found := _find(dataset)) is None:
        return None
    source, above = found
    in_batches = True
    for part in above:
        name = type(part).__name__
        if name in _UNBATCH:
            in_batches = False
        elif name in _BATCH and not in_batches and _batched_as(part, source):
            in_batches = True
        elif name not in _SAME_BATCHES:
            raise _not_one_to_one(name)
        if any(_draws(function) for function in part._functions()):
            _say_what_is_drawn_again()
    if not in_batches:
        raise _not_one_to_one("unbatch without batch")
    return SampledData(dataset, source)


def _find(dataset: tf.data.Dataset) -> tuple[Source, list[tf.data.Dataset]] | None:
    """Returns the source of a dataset, and the datasets made from it, in this order."""
    source: Source | None = getattr(dataset, "_hvd_ft_source", None)
    if source is not None:
        return source, []
    for part in dataset._inputs():
        if (found := _find(part)) is not None:
            return found[0], [*found[1], dataset]
    return None


def _batched_as(part: tf.data.Dataset, source: Source) -> bool:
    same = int(part._batch_size) == source.batch_size
    return same and bool(part._drop_remainder) == source.drop_remainder


def _draws(wrapper: Any) -> bool:
    graph = wrapper.function.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    operations = {node.op for node in nodes if not node.op.startswith("Stateless")}
    return any(word in operation for operation in operations for word in _RANDOM)


def _not_one_to_one(name: str) -> HvdFtError:
    return HvdFtError(
        f"{name.strip('_')} stands behind ElasticSampler.dataset, so its batches cannot be counted "
        "by the sampler: let only map and prefetch follow, or unbatch, map and batch with the "
        "same batch_size and drop_remainder"
    )


@cache
def _say_what_is_drawn_again() -> None:
    say(
        "the data of an ElasticSampler draws random numbers in the pipeline; these begin again "
        "after a restart, so they will differ: use the operations of tf.random.stateless_*, with a "
        "seed made of the sample's index"
    )
