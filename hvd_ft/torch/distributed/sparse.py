"""Sums of sparse tensors: all ranks gather indices and values, and add them up."""

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import ReduceOp

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed.operations import Operation, Operations


def gather_sparse(
    operations: Operations, tensor: torch.Tensor, op: ReduceOp, ranks: int
) -> tuple[list[Operation], Callable[[list[Any]], None]]:
    """Starts the sum of a sparse tensor over all ranks, in place.

    Args:
        operations: of the group.
        tensor: in COO layout; each rank may have another number of values.
        op: SUM or AVG.
        ranks: of the group.

    Returns:
        The operations, and the function that sets the tensor from their results.

    Raises:
        HvdFtError: it is another reduction.
    """
    kind = getattr(op, "op", op)
    if kind not in (ReduceOp.SUM, ReduceOp.AVG):
        raise HvdFtError(f"sparse tensors cannot be reduced by {kind.name}: use SUM or AVG")
    whole = tensor.detach().coalesce()
    indices = whole.indices().t().contiguous()
    started = [operations.gather(indices), operations.gather(whole.values().contiguous())]

    def finish(results: list[Any]) -> None:
        indices, values = results
        total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce()
        if kind == ReduceOp.AVG:
            total = total / ranks
        with torch.no_grad():
            tensor.copy_(total)

    return started, finish
