"""Positions a restarted process's input data at the batch where the previous process stopped."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hvd_ft.errors import HvdFtError

DataIterator = Any  # of tf.data

# Datasets that create their inputs' iterators at once and keep nothing for the next pass.
_PLAIN = frozenset(
    (
        "_TensorDataset",
        "_TensorSliceDataset",
        "_RangeDataset",
        "TFRecordDatasetV2",
        "TextLineDatasetV2",
        "_ShuffleDataset",
        "_CacheDataset",
        "_RepeatDataset",
        "_MapDataset",
        "_ParallelMapDataset",
        "_FilterDataset",
        "_BatchDataset",
        "_ParallelBatchDataset",
        "_PaddedBatchDataset",
        "_UnbatchDataset",
        "_PrefetchDataset",
        "_TakeDataset",
        "_SkipDataset",
        "_ShardDataset",
        "_ZipDataset",
        "_InterleaveDataset",
        "_ParallelInterleaveDataset",
        "_FlatMapDataset",
        "_OptionsDataset",
    )
)


def after_passes(
    dataset: tf.data.Dataset,
    first: DataIterator,
    batches: Sequence[int],
    over: bool = False,
    between: Callable[[], object] = lambda: None,
) -> DataIterator:
    """Catches up with the passes over a dataset that an earlier process has made.

    Args:
        dataset: the data.
        first: this process's first iterator over it, from which nothing has been drawn.
        batches: how many each pass has drawn; at least one pass, all but the last complete.
        over: whether nothing more will be drawn from the last pass.
        between: called after each pass but the last.

    Returns:
        The iterator of the last pass.

    Raises:
        HvdFtError: the data ends elsewhere.
    """
    *past, present = batches
    whole = (bool(past) or over) and carries_state(dataset)
    iterator = first
    for count in past:
        if whole:
            draw(iterator, count)
            if iterator.get_next_as_optional().has_value():  # cache() has to see the end
                raise other_data(count)
        between()
        iterator = iter(dataset)  # even without drawing from it, shuffle() takes a new seed
    if whole or not over:
        draw(iterator, present)
    if whole and over:
        iterator.get_next_as_optional()
    return iterator


def after_validations(dataset: tf.data.Dataset, batches: Sequence[int], steps: int | None) -> None:
    """Catches up with Keras's validations in an earlier process, each a pass of its own.

    Args:
        dataset: the data.
        batches: how many each validation has drawn.
        steps: Keras's limit of batches in a validation; None if there is none.

    Raises:
        HvdFtError: the data ends before that.
    """
    carries = carries_state(dataset)
    whole = steps is None or int(dataset.cardinality()) == steps
    for count in batches:
        if whole:
            iter(dataset)  # Keras creates one iterator, and then another one for each pass
        iterator = iter(dataset)
        if carries:
            draw(iterator, count)
            if whole:
                iterator.get_next_as_optional()  # cache() has to see the end


def draw(iterator: DataIterator, batches: int) -> None:
    """Draws batches from an iterator, and drops them.

    Raises:
        HvdFtError: the data ends before that.
    """
    try:
        _drop(iterator, tf.constant(batches, tf.int64))
    except tf.errors.OutOfRangeError as error:
        raise other_data(batches) from error


def other_data(batches: int) -> HvdFtError:
    """The error if the data does not have the position where an earlier process was."""
    return HvdFtError(
        f"the restarted script's data does not end where it did ({batches} batches were drawn "
        "from it): it must give the same batches on every start"
    )


@tf.function(reduce_retracing=True)
def _drop(iterator: DataIterator, batches: tf.Tensor) -> None:
    for _ in tf.range(batches):
        next(iterator)


def carries_state(dataset: tf.data.Dataset) -> bool:
    """Returns whether drawing from one pass influences the next pass.

    If not, creating an iterator is enough to repeat a past pass. shuffle() takes the seed of a pass
    when the iterator is created, so by itself it carries no state. It does below repeat() and
    cache(), and so do Python code, variables and generators in the pipeline. In doubt the answer is
    yes.
    """
    name = type(dataset).__name__
    if name not in _PLAIN or any(_function_carries_state(f) for f in dataset._functions()):
        return True
    inputs = dataset._inputs()
    if name in ("_CacheDataset", "_RepeatDataset") and any(map(_shuffles, inputs)):
        return True
    return any(map(carries_state, inputs))


def _shuffles(dataset: tf.data.Dataset) -> bool:
    return type(dataset).__name__ == "_ShuffleDataset" or any(map(_shuffles, dataset._inputs()))


def _function_carries_state(wrapper: Any) -> bool:
    function = wrapper.function
    if any(tensor.dtype in (tf.resource, tf.variant) for tensor in function.captured_inputs):
        return True
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    words = ("ShuffleDataset", "CacheDataset", "PyFunc", "GeneratorDataset")
    return any(word in node.op for node in nodes for word in words)
