"""A worker without a framework, seen from Python: sums arrays over all ranks, for measurements.

Every name here corresponds to one in ``include/hvd_ft_sums.h``, which documents it; failures raise
:class:`~hvd_ft.errors.HvdFtError` with the core's own line.
"""

import numpy as np

from hvd_ft.native import abi
from hvd_ft.native.abi import ffi


class Sums:
    """This process's attachment to its job; at most one.

    Attributes:
        rank: The rank of this process.
        size: Number of ranks.
    """

    def __init__(self) -> None:
        abi.checked(abi.library().hvdft_sums_open())
        self.rank = int(abi.library().hvdft_worker_rank())
        self.size = int(abi.library().hvdft_worker_size())

    def sum(self, array: np.ndarray) -> None:
        """Sums a contiguous float32 array over all ranks, in place; all have the same size."""
        assert array.dtype == np.float32 and array.flags.c_contiguous
        pointer = ffi.cast("float *", array.ctypes.data)
        abi.checked(abi.library().hvdft_sums_sum(pointer, array.nbytes))

    def of_each(self, value: float) -> np.ndarray:
        """Returns the value of each rank, by rank, as float32; collective."""
        values = np.zeros(self.size, np.float32)
        values[self.rank] = value
        self.sum(values)
        return values

    def cut(self) -> None:
        """Publishes an empty snapshot, so that the op log begins anew; collective."""
        abi.checked(abi.library().hvdft_sums_cut())

    def leave(self) -> None:
        """Takes part in nothing more."""
        abi.library().hvdft_worker_leave()
