"""Asynchronous work: a future that one thread of the group sets when its operations are done.

PyTorch's C++ (the reducer of DistributedDataParallel, its `join`, communication hooks) asks a work
for its future and for its result. Only a work that is made from a future has both.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

from hvd_ft.torch.distributed.operations import FinishingThread, Operation, Operations

Tensors = list[torch.Tensor]


@dataclass
class _Started:
    operations: Sequence[Operation]
    finish: Callable[[list[Any]], None]
    outputs: Tensors
    future: Any


class Finisher:
    """Finishes operations of a group in the order in which they were started.

    Each group needs its own: of two groups, ranks may start operations in different orders.

    Args:
        operations: of the group.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._started: queue.SimpleQueue[_Started] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def work(
        self,
        operations: Sequence[Operation],
        finish: Callable[[list[Any]], None],
        outputs: Tensors,
    ) -> dist.Work:
        """Returns work that is done when operations are.

        Args:
            operations: that have been started.
            finish: called with their results, by another thread.
            outputs: tensors that are complete then: the result of the work.
        """
        future: Any = torch.futures.Future()
        made = of_future(future.then(_outputs))
        started = _Started(operations, finish, outputs, future)
        if self._thread is None:
            self._thread = FinishingThread(target=self._run, name="hvd_ft works", daemon=True)
            self._thread.start()
        self._started.put(started)
        return made

    def raise_failure(self) -> None:
        """Raises the error of an operation, once: `wait` of its work does not raise it."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        while True:
            started = self._started.get()
            try:
                started.finish([self._operations.result(each) for each in started.operations])
            except Exception as error:
                self._failure = error
                started.future.set_result(error)
            else:
                started.future.set_result(started.outputs)


def _outputs(future: Any) -> Any:
    """Returns a future's value; one that is an error becomes that of the future of this callback.

    `set_exception` would be seen by the same Python object only, not by the future of a work.
    """
    value = future.value()
    if isinstance(value, Exception):
        raise value
    return value


def done(outputs: Tensors) -> dist.Work:
    """Returns work that is done already.

    Args:
        outputs: its result.
    """
    future: Any = torch.futures.Future()
    future.set_result(outputs)
    return of_future(future)


def of_future(future: Any) -> dist.Work:
    """Returns work that is done when a future of its outputs is."""
    c10d: Any = _distributed_c10d
    made: dist.Work = c10d._create_work_from_future(future)
    return made
