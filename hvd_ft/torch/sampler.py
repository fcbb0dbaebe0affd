"""`ElasticSampler`: deals a data set's samples out to ranks whose number may change."""

import horovod.torch as hvd
from torch.utils.data import Sampler

from hvd_ft.worker.elastic_sampler import SampleDealer


class ElasticSampler(SampleDealer, Sampler[int]):
    """Deals the samples of a data set out among the ranks, each sample once in an epoch.

    It holds two numbers, the same on all ranks: the epoch, and how many of the epoch's samples have
    been dealt out. So it continues exactly with any other number of ranks. Give it to `State` as
    one of its values, and draw in one of these ways:

    - `state.batches(DataLoader(dataset, batch_size, sampler=sampler))`, which counts by itself;
    - `batches`, which yields numpy arrays of indices and counts when a batch is drawn; call
      `set_epoch` at the end of an epoch;
    - iterating over a loader that has it, as with Horovod's sampler: call `record_batch` after each
      step, and `set_epoch` at the end of an epoch.

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
