"""Contents of tensors as bytes, and what each reduction of torch.distributed becomes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from horovod.torch import mpi_ops
from torch.distributed import ReduceOp

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed.contents import as_bytes, fill, fill_each, joined, sizes
from hvd_ft.torch.distributed.reductions import reduction

TENSORS = [
    torch.tensor([1, 2, 3], dtype=torch.int8),
    torch.arange(6.0).reshape(2, 3).t(),
    torch.tensor(7.5, dtype=torch.float64),
    torch.zeros(0, 4),
    torch.tensor([True, False, True]),
    torch.tensor([1 + 2j, 3 - 4j]).conj(),
    torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
]


def test_bytes_of_any_tensors_come_back_at_any_offset() -> None:
    again = [torch.zeros_like(tensor).resolve_conj().resolve_neg() for tensor in TENSORS]
    assert again[1].stride() == TENSORS[1].stride()  # not contiguous either
    data = joined(TENSORS)
    assert data.numel() == sum(sizes(TENSORS))
    fill_each(again, data)
    for tensor, expected in zip(again, TENSORS, strict=True):
        assert torch.equal(tensor, expected)


def test_contiguous_contents_are_shared_and_others_copied() -> None:
    tensor = torch.zeros(2, 3)
    as_bytes(tensor).fill_(255)
    assert torch.isnan(tensor).all()
    as_bytes(tensor.t()).fill_(0)
    assert torch.isnan(tensor).all()
    fill(tensor, as_bytes(tensor))  # of its own memory


def test_a_parameter_is_filled_without_history() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    fill(parameter, as_bytes(torch.tensor([1.0, 2.0])))
    assert parameter.tolist() == [1.0, 2.0]
    assert parameter.grad_fn is None


OF_HOROVOD: dict[int, Callable[..., torch.Tensor]] = {
    mpi_ops.Sum: torch.add,
    mpi_ops.Product: torch.mul,
    mpi_ops.Min: torch.minimum,
    mpi_ops.Max: torch.maximum,
}


def reduced(op: Any, dtype: torch.dtype, *inputs: list[Any]) -> list[Any]:
    """Reduces as a group does, with torch's operations for Horovod's."""
    how = reduction(op, dtype)
    data = [torch.tensor(values).to(dtype).to(how.dtype) for values in inputs]
    if how.op is None:
        return list(how.of_all(torch.stack(data)).tolist())
    total = data[0]
    for other in data[1:]:
        total = OF_HOROVOD[how.op](total, other)
    assert total.dtype is how.dtype
    found = how.finished(total, len(inputs), dtype)
    assert found.dtype is dtype
    return list(found.tolist())


@pytest.mark.parametrize(
    ("op", "dtype", "expected"),
    [
        (ReduceOp.SUM, torch.float32, [6, 9, 12]),
        (ReduceOp.AVG, torch.float64, [2, 3, 4]),
        (ReduceOp.AVG, torch.bfloat16, [2, 3, 4]),
        (ReduceOp.PRODUCT, torch.int64, [6, 24, 60]),
        (ReduceOp.MIN, torch.float16, [1, 2, 3]),
        (ReduceOp.MAX, torch.uint8, [3, 4, 5]),
        (ReduceOp.BOR, torch.int8, [3, 7, 7]),
        (ReduceOp.BXOR, torch.int16, [0, 5, 2]),
        (ReduceOp(ReduceOp.SUM), torch.float32, [6, 9, 12]),  # as options have it
    ],
)
def test_reductions(op: Any, dtype: torch.dtype, expected: list[Any]) -> None:
    assert reduced(op, dtype, [1, 2, 3], [2, 3, 4], [3, 4, 5]) == expected


def test_bits_that_all_ranks_have() -> None:
    assert reduced(ReduceOp.BAND, torch.int32, [7, 6], [3, 14], [2, 10]) == [2, 2]


def test_small_integers_wrap_around() -> None:
    assert reduced(ReduceOp.SUM, torch.int8, [100, -100], [100, -100]) == [-56, 56]
    assert reduced(ReduceOp.PRODUCT, torch.uint8, [200], [200], [200]) == [200**3 % 256]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ReduceOp.SUM, [False, True, True]),
        (ReduceOp.PRODUCT, [False, False, True]),
        (ReduceOp.MIN, [False, False, True]),
        (ReduceOp.MAX, [False, True, True]),
        (ReduceOp.BXOR, [False, True, False]),
    ],
)
def test_bools_stay_bools(op: Any, expected: list[bool]) -> None:
    assert reduced(op, torch.bool, [False, True, True], [False, False, True]) == expected


@pytest.mark.parametrize(
    ("op", "dtype", "remedy"),
    [
        (ReduceOp.AVG, torch.int32, "by AVG: use SUM"),
        (ReduceOp.BOR, torch.float32, "by BOR: use SUM"),
        (ReduceOp.SUM, torch.uint16, "of torch.uint16: convert them"),
        (ReduceOp.SUM, torch.complex64, "of torch.complex64: convert them"),
    ],
)
def test_what_cannot_be_reduced_is_refused(op: Any, dtype: torch.dtype, remedy: str) -> None:
    with pytest.raises(HvdFtError, match=remedy):
        reduction(op, dtype)
