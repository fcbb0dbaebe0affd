"""Contents of tensors as bytes, for operations that only move them; of any type and layout."""

from collections.abc import Sequence

import torch


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor's contents in row-major order: uint8, of one dimension.

    They share memory with the tensor if this is contiguous, and are a copy otherwise.
    """
    return plain(tensor).reshape(-1).view(torch.uint8)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor without history, contiguous; shares memory if the tensor is contiguous."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the contents of tensors one after the other, copied, as bytes."""
    return torch.cat([as_bytes(tensor) for tensor in tensors])


def sizes(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Returns the number of bytes of each tensor."""
    return [tensor.numel() * tensor.element_size() for tensor in tensors]


def fill(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """Sets a tensor to contents that `as_bytes` returned.

    Args:
        tensor: of any type and layout; may share memory with `data`.
        data: uint8, of one dimension.
    """
    if tensor.numel() == 0:
        return
    if data.storage_offset() % tensor.element_size():
        data = data.clone()
    assign(tensor, data.view(tensor.dtype))


def assign(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Sets a tensor to values of its type, in row-major order; they may share its memory."""
    if tensor.data_ptr() != values.data_ptr():
        with torch.no_grad():
            tensor.copy_(values.view(tensor.shape))


def fill_each(tensors: Sequence[torch.Tensor], data: torch.Tensor) -> None:
    """Sets tensors to contents that `joined` returned."""
    for tensor, part in zip(tensors, data.split(sizes(tensors)), strict=True):
        fill(tensor, part)
