"""Broadcasts of bytes and of arrays from rank 0."""

from collections.abc import Mapping

import horovod.torch as hvd
import numpy as np
import torch


def broadcast_bytes(data: bytes, size_name: str, name: str) -> bytes:
    """Returns rank 0's bytes, on all ranks.

    Args:
        data: the bytes to send, on rank 0; ignored on other ranks.
        size_name: name of the broadcast of their number.
        name: name of the broadcast of the bytes.
    """
    size = hvd.broadcast(torch.tensor([len(data)], device="cpu"), 0, name=size_name)
    own = np.frombuffer(data, np.uint8) if hvd.rank() == 0 else np.zeros(int(size[0]), np.uint8)
    found: bytes = hvd.broadcast(torch.from_numpy(own.copy()), 0, name=name).numpy().tobytes()
    return found


def broadcast_arrays(arrays: Mapping[str, np.ndarray], name: str) -> None:
    """Sets arrays to rank 0's contents, in place.

    Args:
        arrays: of any types, writable and contiguous; the same names, types and shapes on all
            ranks. They travel as bytes.
        name: prefix of the broadcasts' names.
    """
    handles = [
        hvd.broadcast_async_(
            torch.from_numpy(array.reshape(-1).view(np.uint8)), 0, name=f"{name}.{number}"
        )
        for number, array in enumerate(arrays.values())
        if array.size
    ]
    for handle in handles:
        hvd.synchronize(handle)
