"""Which of Horovod's reductions gives which of c10d's, for each type.

Horovod reduces numbers of 32 and 64 bits and floating-point numbers. Smaller integers and bools are
reduced as int32, which gives the same bits. Bit-wise reductions have no operation of Horovod: each
rank gathers all inputs and reduces them itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from horovod.torch import mpi_ops
from torch.distributed import ReduceOp

from hvd_ft.errors import HvdFtError

_OF_HOROVOD = {
    ReduceOp.SUM: mpi_ops.Sum,
    ReduceOp.AVG: mpi_ops.Sum,
    ReduceOp.PRODUCT: mpi_ops.Product,
    ReduceOp.MIN: mpi_ops.Min,
    ReduceOp.MAX: mpi_ops.Max,
}
_BITWISE: dict[ReduceOp.RedOpType, Callable[..., torch.Tensor]] = {
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}
_REDUCED = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
)
_AS_INT32 = (torch.bool, torch.uint8, torch.int8, torch.int16)


@dataclass(frozen=True)
class Reduction:
    """How tensors of one type are reduced.

    Attributes:
        op: Horovod's; None for a bit-wise reduction.
        dtype: as which the tensors are reduced.
        combine: of a bit-wise reduction: reduces two tensors.
        average: whether the sum is divided by the number of ranks.
    """

    op: int | None
    dtype: torch.dtype
    combine: Callable[..., torch.Tensor] | None = None
    average: bool = False

    def finished(self, reduced: torch.Tensor, ranks: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns the result of Horovod's reduction as the caller wants it.

        Args:
            reduced: the result, of `self.dtype`. May be changed.
            ranks: how many have taken part.
            dtype: of the caller's tensors.
        """
        return (reduced.div_(ranks) if self.average else reduced).to(dtype)

    def of_all(self, inputs: torch.Tensor) -> torch.Tensor:
        """Reduces bit by bit.

        Args:
            inputs: those of all ranks, along the first dimension.
        """
        assert self.combine is not None
        result = inputs[0].clone()
        for other in inputs[1:]:
            result = self.combine(result, other)
        return result


def reduction(op: ReduceOp, dtype: torch.dtype) -> Reduction:
    """Returns how tensors of a type are reduced.

    Raises:
        HvdFtError: they cannot be.
    """
    kind = getattr(op, "op", op)
    if kind in _BITWISE and not dtype.is_floating_point:
        return Reduction(None, dtype, combine=_BITWISE[kind])
    average = kind == ReduceOp.AVG
    if dtype not in (*_REDUCED, *_AS_INT32):
        raise HvdFtError(
            f"the backend hvd_ft cannot reduce tensors of {dtype}: convert them to another type"
        )
    if kind not in _OF_HOROVOD or (average and not dtype.is_floating_point):
        raise HvdFtError(
            f"the backend hvd_ft cannot reduce tensors of {dtype} by {kind.name}: use SUM, MIN, "
            "MAX or PRODUCT, for whole numbers BAND, BOR or BXOR, for others AVG"
        )
    if dtype is torch.bool:  # true is 1, and a sum of bools is true if one of them is
        kinds = {ReduceOp.SUM: mpi_ops.Max, ReduceOp.PRODUCT: mpi_ops.Min}
        return Reduction(kinds.get(kind, _OF_HOROVOD[kind]), torch.int32)
    return Reduction(
        _OF_HOROVOD[kind],
        torch.int32 if dtype in _AS_INT32 else dtype,
        average=average,
    )
