"""Tensors in a snapshot: their contents as NumPy arrays, and forms that say how to make them again.

A form is plain data: the name of the array, and what the array does not tell. NumPy has no
bfloat16; such contents are kept as unsigned integers, and the array's name ends with the type.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hvd_ft.errors import HvdFtError

Form = dict[str, Any]
_FOREIGN = {
    1: torch.uint8,
    2: torch.uint16,
    4: torch.uint32,
}  # instead of types that NumPy lacks, by their bytes


class Arrays:
    """Collects the contents of tensors as arrays.

    Args:
        copies: memory that contents are copied to, kept from one snapshot to the next; None: arrays
            are views of the tensors where that is possible.

    Attributes:
        arrays: by number and name, such as `3:model.fc.weight`.
        tensors: the tensors by the same names.
    """

    def __init__(self, copies: "Copies | None" = None) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self._copies = copies

    def add(self, name: str, tensor: torch.Tensor) -> Form:
        """Adds a tensor's contents; returns its form.

        Args:
            name: for messages and files.
            tensor: strided or COO, of any type, shape and device.

        Raises:
            HvdFtError: it is of another kind.
        """
        tensor = tensor.detach()
        if tensor.layout is torch.sparse_coo:
            parts = [tensor._indices(), tensor._values()]
            forms = [
                self.add(f"{name}.{part}", data)
                for part, data in zip(("indices", "values"), parts, strict=True)
            ]
            return {"sparse": forms, "size": list(tensor.shape), "whole": tensor.is_coalesced()}
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            kind = "quantized" if tensor.is_quantized else str(tensor.layout)
            raise HvdFtError(
                f"{name} cannot be kept in a snapshot: it is a {kind} tensor on the device "
                f"{tensor.device}; keep dense or COO tensors in it"
            )
        plain = is_plain(tensor.dtype)
        dtype = str(tensor.dtype).removeprefix("torch.")
        key = f"{len(self.arrays)}:{name}" + ("" if plain else f"|{dtype}")
        form: Form = {"array": key, "dtype": dtype}
        if tensor.device.type != "cpu":
            form["device"] = str(tensor.device)
        if not tensor.is_contiguous() and torch._debug_has_internal_overlap(tensor) == 0:
            form["stride"] = list(tensor.stride())
        self.tensors[key] = tensor
        data = tensor.resolve_conj().resolve_neg().cpu().contiguous()
        data = data if plain else data.view(_FOREIGN[tensor.element_size()])
        self.arrays[key] = (data if self._copies is None else self._copies.copy(key, data)).numpy()
        return form

    def assign(self, key: str, array: np.ndarray) -> None:
        """Sets the tensor that has this name among `arrays`."""
        tensor = self.tensors[key]
        with torch.no_grad():
            tensor.copy_(_tensor(array, tensor.dtype).reshape(tensor.shape))


class Copies:
    """Memory for copies of tensors, used again for each snapshot.

    torch changes tensors in place, so a snapshot's contents have to be copied before training goes
    on. They are copied a second time, into the arena, while it does; the next snapshot begins only
    after that.
    """

    def __init__(self) -> None:
        self._memory: dict[str, torch.Tensor] = {}

    def copy(self, key: str, data: torch.Tensor) -> torch.Tensor:
        """Returns a copy of a contiguous tensor on the CPU, valid until the next of this key."""
        room = self._room(key, data.shape, data.dtype)
        room.copy_(data)
        return room

    def keep(self, key: str, array: np.ndarray) -> np.ndarray:
        """Returns a copy of an array of a snapshot, valid as long."""
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        room: np.ndarray = self._room(key, torch.Size(array.shape), dtype).numpy()
        np.copyto(room, array)
        return room

    def _room(self, key: str, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        room = self._memory.get(key)
        if room is None or room.shape != shape or room.dtype != dtype:
            room = self._memory[key] = torch.empty(shape, dtype=dtype, device="cpu")
        return room


def made(form: Form, arrays: Mapping[str, np.ndarray]) -> torch.Tensor:
    """Returns a new tensor as `Arrays.add` has seen it, its contents copied.

    Args:
        form: returned by `Arrays.add`.
        arrays: of the snapshot.
    """
    if "sparse" in form:
        indices, values = [made(part, arrays) for part in form["sparse"]]
        size = torch.Size(form["size"])
        tensor = torch.sparse_coo_tensor(indices, values, size, check_invariants=False)
        return tensor._coalesced_(form["whole"])
    tensor = _tensor(np.array(arrays[form["array"]]), getattr(torch, form["dtype"]))
    if "stride" in form:
        shape, stride = tensor.shape, form["stride"]
        strided = torch.empty_strided(shape, stride, dtype=tensor.dtype, device="cpu")
        tensor = strided.copy_(tensor)
    return tensor.to(form["device"]) if "device" in form else tensor


def set_in_place(tensor: Any, contents: Any) -> bool:
    """Copies a tensor's contents into another tensor of the same type and shape.

    Returns:
        Whether it did: both are dense tensors, and they match.
    """
    if not (isinstance(tensor, torch.Tensor) and isinstance(contents, torch.Tensor)):
        return False
    if not tensor.layout is contents.layout is torch.strided:
        return False
    if (tensor.shape, tensor.dtype) != (contents.shape, contents.dtype):
        return False
    with torch.no_grad():
        tensor.copy_(contents)
    return True


def is_plain(dtype: torch.dtype) -> bool:
    """Returns whether NumPy has a type."""
    return dtype is torch.bool or hasattr(np, str(dtype).removeprefix("torch."))


def _tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor that shares memory with an array; of types that NumPy lacks as well."""
    writable = array if array.flags.writeable else array.copy()
    tensor = torch.from_numpy(writable)
    return tensor if tensor.dtype is dtype else tensor.view(dtype)
