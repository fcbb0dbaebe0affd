"""Horovod's operations for a process group, named by place.

A name has the group, the operation with what it works on, and a number that recurs. Each rank
counts the operations of each kind, so a replayed script asks for the same names again; the counts
are part of every snapshot. As names recur, Horovod announces operations by number.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import horovod.torch as horovod
import torch
from horovod.torch import mpi_ops

from hvd_ft.errors import HvdFtError
from hvd_ft.torch import op_names
from hvd_ft.torch.distributed.contents import joined, sizes
from hvd_ft.torch.distributed.members import Members

Operation = tuple[str, int]  # its name and Horovod's handle

_NUMBERS = 8  # operations of one kind and shape that can be under way at once


class FinishingThread(threading.Thread):
    """Awaits operations, and calls back whoever has asked for that.

    An operation that a callback starts would be counted at another moment on each rank, and would
    be awaited by the very thread that has to finish it.
    """


class Operations:
    """Starts operations of a group, and awaits them.

    Args:
        group: the group's name.
        members: its ranks.
    """

    def __init__(self, group: str, members: Members) -> None:
        self._group = group
        self._members = members
        self._under_way: set[str] = set()  # names
        self._changed = threading.Condition()

    def reduce(self, tensor: torch.Tensor, op: int) -> Operation:
        """Reduces contiguous tensors of all ranks, in place."""
        return self._start(
            f"allreduce.{_form(tensor)}.{op}",
            lambda **named: horovod.allreduce_async_(tensor, op=op, **named),
        )

    def reduce_scatter(self, tensor: torch.Tensor, op: int) -> Operation:
        """Reduces contiguous tensors of all ranks; each gets its slice of the first dimension."""
        return self._start(
            f"reducescatter.{_form(tensor)}.{op}",
            lambda **named: horovod.reducescatter_async(tensor, op=op, **named),
        )

    def broadcast(self, tensor: torch.Tensor, root: int) -> Operation:
        """Sets contiguous tensors of all ranks to that of one rank of the group."""
        rank = self._members.ranks[root]
        return self._start(
            f"broadcast.{_form(tensor)}.{rank}",
            lambda **named: horovod.broadcast_async_(tensor, rank, **named),
        )

    def gather(self, tensor: torch.Tensor) -> Operation:
        """Joins tensors of all ranks along the first dimension, in the process set's order."""
        shape = "x".join(map(str, tensor.shape[1:]))
        return self._start(
            f"allgather.{tensor.dtype}.{shape}",
            lambda **named: horovod.allgather_async(tensor, **named),
        )

    def exchange(self, parts: Sequence[torch.Tensor]) -> Operation:
        """Sends tensors' contents to each rank of the group.

        Args:
            parts: of any types and shapes, by rank of the group.
        """
        parts = self._members.by_set(parts)
        data = joined(parts)
        splits = torch.tensor(sizes(parts), dtype=torch.int32, device="cpu")
        return self._start(
            "alltoall", lambda **named: horovod.alltoall_async(data, splits, **named)
        )

    def result(self, operation: Operation) -> Any:
        """Waits for an operation, and returns what Horovod returns."""
        name, handle = operation
        try:
            return mpi_ops.synchronize(handle)
        finally:
            with self._changed:
                self._under_way.discard(name)
                self._changed.notify_all()

    def _start(self, what: str, start: Callable[..., int]) -> Operation:
        if isinstance(threading.current_thread(), FinishingThread):
            raise HvdFtError(
                "a callback of a future (as of DistributedDataParallel's hooks for PowerSGD and "
                "quantization) cannot start collectives on the backend hvd_ft: start them where "
                "the future is waited for"
            )
        scope = f"c10d.{self._group}.{what}"
        name = f"{scope}.{op_names.count(scope) % _NUMBERS}"
        with self._changed:  # the operation of this name ends before this one on all ranks
            self._changed.wait_for(lambda: name not in self._under_way)
            handle = start(name=name, process_set=self._members.process_set)
            self._under_way.add(name)
        return name, handle


def _form(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype}.{tensor.numel()}"
