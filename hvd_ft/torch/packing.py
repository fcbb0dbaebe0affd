"""Nested values with tensors, such as a `state_dict`, as plain data and arrays; without pickle."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.tensors import Arrays, made

_PLAIN = (bool, int, float, str)  # not classes made of them, which would lose their type
_NUMPY = (np.generic, np.ndarray)
_KIND = "kind"  # key of what marks a packed value that is no plain one
_MAPPINGS: dict[str, type] = {
    kind.__name__: kind for kind in (dict, OrderedDict, Counter, defaultdict)
}
_SEQUENCES: dict[str, type] = {
    kind.__name__: kind for kind in (list, tuple, set, frozenset, deque, torch.Size)
}
_NAMED = (torch.dtype, torch.device)  # values that their text stands for


def pack(arrays: Arrays, name: str, value: Any) -> Any:
    """Returns a value in a form that a snapshot can hold.

    Args:
        arrays: to which the contents of tensors are added.
        name: of the value, for messages and for names of arrays.
        value: None, bool, int, float, complex, str, bytes, tensors, NumPy scalars and arrays, types
            and devices of torch; and lists, tuples, sets, deques and dicts of these, with keys of
            these.

    Raises:
        HvdFtError: something else is among it; the message names it.
    """
    if value is None or type(value) in _PLAIN or isinstance(value, _NUMPY):
        return value
    if isinstance(value, torch.Tensor):
        return {_KIND: "tensor", "form": arrays.add(name, value)}
    if isinstance(value, Mapping | list | tuple | set | frozenset | deque):
        return _pack_items(arrays, name, value)
    if isinstance(value, _NAMED):
        return {_KIND: type(value).__name__, "text": str(value)}
    if isinstance(value, complex):
        return {_KIND: "complex", "parts": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {_KIND: "bytes", "bytes": np.frombuffer(bytes(value), np.uint8)}
    raise _cannot(name, value)


def _pack_items(arrays: Arrays, name: str, value: Any) -> dict[str, Any]:
    kind, own = type(value).__name__, type(value)
    items: list[Any]
    if own is _MAPPINGS.get(kind):
        items = [
            [pack(arrays, name, key), pack(arrays, f"{name}.{key}", item)]
            for key, item in value.items()
        ]
        return {_KIND: "dict" if kind == "defaultdict" else kind, "items": items}
    if own is not _SEQUENCES.get(kind):
        raise _cannot(name, value)
    items = [pack(arrays, f"{name}.{number}", item) for number, item in enumerate(value)]
    more = {"most": value.maxlen} if isinstance(value, deque) else {}
    return {_KIND: kind, "items": items, **more}


def _cannot(name: str, value: Any) -> HvdFtError:
    return HvdFtError(
        f"{name} cannot be kept in a snapshot: it is a {type(value).__name__}; keep None, numbers, "
        "texts, tensors, numpy arrays, and lists, tuples, sets and dicts of these, or give State "
        "an object with state_dict and load_state_dict"
    )


def unpack(packed: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns the value that `pack` has got; its tensors are new ones.

    Args:
        packed: returned by `pack`.
        arrays: of the snapshot.
    """
    if not isinstance(packed, dict):
        return packed
    kind = packed[_KIND]
    if kind in _MAPPINGS:
        pairs = [(unpack(key, arrays), unpack(item, arrays)) for key, item in packed["items"]]
        return _MAPPINGS[kind](dict(pairs))
    if kind in _SEQUENCES:
        items = [unpack(item, arrays) for item in packed["items"]]
        return deque(items, packed["most"]) if kind == "deque" else _SEQUENCES[kind](items)
    return _LEAVES[kind](packed, arrays)


_LEAVES: dict[str, Callable[[dict[str, Any], Mapping[str, np.ndarray]], Any]] = {
    "tensor": lambda packed, arrays: made(packed["form"], arrays),
    "dtype": lambda packed, _: getattr(torch, packed["text"].removeprefix("torch.")),
    "device": lambda packed, _: torch.device(packed["text"]),
    "complex": lambda packed, _: complex(*packed["parts"]),
    "bytes": lambda packed, _: packed["bytes"].tobytes(),
}
