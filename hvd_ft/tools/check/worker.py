"""The worker of `hvdft check`: one allreduce whose sum is known."""

import os
import sys

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft.tools.check.two_ranks import RIGHT

_ELEMENTS = 1 << 17  # several segments of the ring; in float32 every sum is exact


def main() -> None:
    """Compares the sum and prints that it is right."""
    hvd.init()
    values = np.arange(_ELEMENTS, dtype=np.float32)
    total = hvd.allreduce(tf.constant(values * (hvd.rank() + 1)), op=hvd.Sum).numpy()
    expected = values * sum(range(1, hvd.size() + 1))
    if hvd.size() < 2 or not np.array_equal(total, expected):
        sys.exit(f"rank {hvd.rank()} of {hvd.size()}: the sum of an allreduce is wrong")
    os.write(1, f"{RIGHT.format(rank=hvd.rank())}\n".encode())  # in one piece


if __name__ == "__main__":
    main()
