"""`dist.send` and `dist.recv`: the messages of `hvd_ft.p2p`, between ranks of a group."""

from collections import deque
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hvd_ft import p2p
from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed.contents import assign, fill, plain
from hvd_ft.torch.staging import on_host
from hvd_ft.torch.tensors import is_plain

_TAGS = 1 << 20  # of each group but the first, which has all


class Messages:
    """The messages between ranks of a group.

    Args:
        ranks: of the job, by rank of the group.
        number: of the group; 0 for that of all ranks, whose tags are those of `hvd_ft.p2p`.
    """

    def __init__(self, ranks: tuple[int, ...], number: int) -> None:
        self._ranks = ranks
        self._number = number
        self._awaited: dict[tuple[int, int], deque[Receipt]] = {}

    def send(self, tensor: torch.Tensor, dest: int, tag: int) -> None:
        """Sends a tensor to a rank of the group; returns when it is in the log."""
        p2p.ft_send(_array(tensor), self._ranks[dest], self._tag(tag))

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> "Receipt":
        """Returns work that receives a tensor when it is waited for.

        Those of the same rank and tag are received in the order of these calls.
        """
        rank, its = self._ranks[source], self._tag(tag)
        line = self._awaited.setdefault((rank, its), deque())
        receipt = Receipt(tensor, rank, its, source, line)
        line.append(receipt)
        return receipt

    def _tag(self, tag: int) -> int:
        if self._number == 0:
            return tag
        if tag not in range(_TAGS):
            raise HvdFtError(f"tag={tag} is not allowed in this group: give 0 to {_TAGS - 1}")
        return tag + self._number * _TAGS


class Receipt(dist.Work):
    """A message to be received.

    Args:
        tensor: to receive into.
        rank: of the job, that sends.
        tag: the job's.
        source: the sender's rank in the group.
        line: the receipts of this rank and tag that are not complete, in order.
    """

    def __init__(
        self,
        tensor: torch.Tensor,
        rank: int,
        tag: int,
        source: int,
        line: "deque[Receipt]",
    ) -> None:
        super().__init__()
        self._tensor = tensor
        self._rank, self._tag, self._source = rank, tag, source
        self._line = line
        self._future: Any = torch.futures.Future()

    def wait(self, timeout: Any = None) -> bool:
        """Receives the message, and those before it."""
        while not self._future.done():
            self._line.popleft()._receive()
        return True

    def is_completed(self) -> bool:
        """Returns whether the message is received."""
        return bool(self._future.done())

    def is_success(self) -> bool:
        """Returns the same: a message that cannot be received ends the job."""
        return self.is_completed()

    def result(self) -> list[torch.Tensor]:
        """Returns the tensor, in a list."""
        self.wait()
        return [self._tensor]

    def get_future(self) -> Any:
        """Returns a future that is set when the message is received: by `wait`."""
        return self._future

    def source_rank(self) -> int:
        """Returns the sender's rank in the group."""
        return self._source

    def _source_rank(self) -> int:
        return self._source

    def _receive(self) -> None:
        array = p2p.ft_recv(_array(self._tensor), self._rank, self._tag)
        data = torch.from_numpy(array)
        if is_plain(self._tensor.dtype):
            assign(self._tensor, data)
        else:
            fill(self._tensor, data.reshape(-1))
        self._future.set_result([self._tensor])


def _array(tensor: torch.Tensor) -> np.ndarray:
    """Returns a tensor's contents; as bytes if NumPy lacks its type.

    Shares memory with a contiguous tensor of the CPU.
    """
    data = on_host(plain(tensor))
    if not is_plain(data.dtype):
        data = data.reshape(-1).view(torch.uint8)
    array: np.ndarray = data.numpy()
    return array
