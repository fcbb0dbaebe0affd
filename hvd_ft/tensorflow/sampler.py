"""`ElasticSampler`: deals a data set's samples out to ranks whose number may change."""

from dataclasses import dataclass

import horovod.tensorflow as hvd
import tensorflow as tf

from hvd_ft.worker.elastic_sampler import SampleDealer, check_batch_size


class ElasticSampler(SampleDealer):
    """Deals the samples of a data set out among the ranks, each sample once in an epoch.

    It holds two numbers, the same on all ranks: the epoch, and how many of the epoch's samples have
    been dealt out. So it continues exactly with any other number of ranks. Give it to `State` as
    one of its values, and draw in one of these ways:

    - `state.batches(sampler.dataset(...))` or `Model.fit(sampler.dataset(...))`, which count by
      themselves;
    - `batches`, which yields numpy arrays of indices and counts when a batch is drawn; call
      `set_epoch` at the end of an epoch;
    - iterating over the sampler, or over `dataset` by itself, as with Horovod's sampler for torch:
      call `record_batch` after each step, and `set_epoch` at the end of an epoch.

    All ranks get the same number of samples. If an epoch's samples cannot be divided evenly, its
    last step gets some of the epoch's first samples once more, fewer than there are ranks.

    Args:
        dataset: the data set, or any object of the same length, or that length as a number.
        shuffle: whether each epoch has its own order, drawn from `seed` and the epoch's number.
        seed: 0 or more, the same on all ranks.

    Attributes:
        samples: number of samples in an epoch.
        epoch: number of the present epoch.
        processed_num: how many of its samples have been dealt out.

    Raises:
        HvdFtError: there are no samples, or the seed is negative.
    """

    @staticmethod
    def present_ranks() -> tuple[int, int]:
        """Returns this process's rank and the number of ranks, as they are now."""
        return hvd.rank(), hvd.size()

    def dataset(self, batch_size: int, drop_remainder: bool = False) -> tf.data.Dataset:
        """Returns a dataset of the arrays that `batches` yields; a pass is the rest of the epoch.

        Turn the indices into data with operations that keep the batches: `map` and `prefetch`, or
        `unbatch`, `map` and `batch` with the same size. `State.batches` and `Model.fit` with
        `FaultTolerance` draw from the dataset, and count the samples that they have trained with.
        Samples that are only read ahead do not count.

        Args:
            batch_size: as for `batches`.
            drop_remainder: as for `batches`; batches then have a static shape.

        Raises:
            HvdFtError: `batch_size` is less than 1.
        """
        check_batch_size(batch_size)

        def rest(_: tf.Tensor) -> tf.data.Dataset:
            # Called where a pass draws its first batch, not where its iterator is created.
            drawn = tf.numpy_function(
                lambda: self.rest(batch_size, drop_remainder), [], Tout=tf.int64
            )
            return tf.data.Dataset.from_tensor_slices(tf.ensure_shape(drawn, [None]))

        indices = tf.data.Dataset.range(1).flat_map(rest)
        dataset = indices.batch(batch_size, drop_remainder)
        dataset._hvd_ft_source = Source(self, batch_size, drop_remainder)
        return dataset


@dataclass(frozen=True)
class Source:
    """What `ElasticSampler.dataset` was called with."""

    sampler: ElasticSampler
    batch_size: int
    drop_remainder: bool
