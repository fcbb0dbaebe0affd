"""The worker of `hvdft check`: one allreduce whose sum is known, with the framework named."""

import os
import sys

import numpy as np

from hvd_ft.tools.check.two_ranks import RIGHT

_ELEMENTS = 1 << 17  # several segments of the ring; in float32 every sum is exact


def sum_with_tensorflow(values: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Returns the sum of an allreduce, the rank and the size.

    Args:
        values: float32, one dimension: what each rank contributes, times its rank plus one.
    """
    import tensorflow as tf

    import hvd_ft.tensorflow as hvd

    hvd.init()
    total = hvd.allreduce(tf.constant(values * (hvd.rank() + 1)), op=hvd.Sum)
    return total.numpy(), hvd.rank(), hvd.size()


def sum_with_torch(values: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Returns the same with PyTorch."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    total = hvd.allreduce(torch.from_numpy(values * (hvd.rank() + 1)), op=hvd.Sum)
    return total.numpy(), hvd.rank(), hvd.size()


def main() -> None:
    """Compares the sum and prints that it is right."""
    values = np.arange(_ELEMENTS, dtype=np.float32)
    summed = {"tensorflow": sum_with_tensorflow, "torch": sum_with_torch}[sys.argv[1]]
    total, rank, size = summed(values)
    expected = values * sum(range(1, size + 1))
    if size < 2 or not np.array_equal(total, expected):
        sys.exit(f"rank {rank} of {size}: the sum of an allreduce is wrong")
    os.write(1, f"{RIGHT.format(rank=rank)}\n".encode())  # in one piece


if __name__ == "__main__":
    main()
