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

from hvd_ft.torch.distributed.operations import Operation, Operations

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
        future = torch.futures.Future()
        started = _Started(operations, finish, outputs, future)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hvd_ft works", daemon=True)
            self._thread.start()
        self._started.put(started)
        return _work(future)

    def _run(self) -> None:
        while True:
            started = self._started.get()
            try:
                started.finish([self._operations.result(each) for each in started.operations])
            except Exception as error:  # whoever waits for the work raises it
                started.future.set_exception(error)
            else:
                started.future.set_result(started.outputs)


def done(outputs: Tensors) -> dist.Work:
    """Returns work that is done already.

    Args:
        outputs: its result.
    """
    future: Any = torch.futures.Future()
    future.set_result(outputs)
    return _work(future)


def _work(future: Any) -> dist.Work:
    c10d: Any = _distributed_c10d
    made: dist.Work = c10d._create_work_from_future(future)
    return made
