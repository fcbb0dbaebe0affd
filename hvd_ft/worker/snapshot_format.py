"""The format of a snapshot: a JSON header that describes the contents, then the raw arrays.

Layout: magic (8 bytes), length of the header (8 bytes, little endian), its hash (16 bytes), header,
and each array at its offset, counted from the first multiple of 64 after the header. Pickle is not
used: reading a snapshot yields data, never code. The header's hash does not cover the arrays; in a
rank's snapshot these have fingerprints (shared_contents.py).
"""

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import xxhash

from hvd_ft.errors import HvdFtError
from hvd_ft.system.json_text import read_json

_MAGIC = b"HVDFTSN2"
_PREFIX = struct.Struct("<8sQ16s")
_ALIGN = 64
_PLAIN = frozenset({type(None), bool, int, float, str})  # JSON represents them directly
_TAG = "__hvd_ft__"  # marks values that JSON cannot represent
_FOREIGN = "this is not a snapshot of this version of hvd_ft, or it is damaged"


def encode(arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> list[memoryview]:
    """Encodes a snapshot.

    Args:
        arrays: any shapes; numeric or bool dtypes, little endian (numpy's or ml_dtypes').
        values: None, bool, int, float, str, numpy scalars and arrays, and lists, tuples and dicts
            (keys: str) of these. Floats are restored exactly, including nan and inf.

    Returns:
        Byte buffers to be written one after the other. They are views of `arrays`, not copies:
        write them before the arrays change. Arrays among the values are copied.

    Raises:
        HvdFtError: an array or value cannot be encoded; the message names it.
    """
    packer = _Packer()
    header = {
        "arrays": {name: packer.add(name, array) for name, array in arrays.items()},
        "values": {name: packer.pack(name, value) for name, value in values.items()},
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    start = _PREFIX.size + len(text)
    pad = bytes(_aligned(start) - start)
    prefix = _PREFIX.pack(_MAGIC, len(text), xxhash.xxh3_128_digest(text))
    return [memoryview(prefix + text + pad), *packer.buffers]


def decode(data: memoryview) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads a snapshot.

    Args:
        data: the bytes that `encode` returned, joined.

    Returns:
        The arrays, as views of `data`, and the values; arrays among the values are copies.

    Raises:
        HvdFtError: the bytes are not a complete snapshot.
    """
    try:
        magic, length, digest = _PREFIX.unpack_from(data)
        end = _PREFIX.size + length
        text = bytes(data[_PREFIX.size : end])
        if magic != _MAGIC or xxhash.xxh3_128_digest(text) != digest:
            raise HvdFtError(_FOREIGN)
        header = read_json(text)
        body = data[_aligned(end) :]
        arrays = {name: _array(body, entry) for name, entry in header["arrays"].items()}
        values = {name: _unpack(body, value) for name, value in header["values"].items()}
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HvdFtError(_FOREIGN) from error
    return arrays, values


class _Packer:
    """Turns values into JSON and collects the buffers of arrays, with the gaps between them."""

    def __init__(self) -> None:
        self.buffers: list[memoryview] = []
        self._bytes = 0

    def add(self, name: str, array: np.ndarray) -> dict[str, Any]:
        if array.dtype.hasobject or array.dtype.kind in "USMm" or array.dtype.byteorder == ">":
            raise HvdFtError(
                f"{name} cannot be kept in a snapshot: it is an array of {array.dtype}; "
                "keep numbers or bools in it"
            )
        entry = {"dtype": array.dtype.name, "shape": array.shape, "offset": self._bytes}
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        gap = _aligned(data.nbytes) - data.nbytes
        self.buffers += [data, memoryview(bytes(gap))]
        self._bytes += data.nbytes + gap
        return entry

    def pack(self, name: str, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, np.generic):
            return {_TAG: "scalar", **self.add(name, np.asarray(value))}
        if isinstance(value, np.ndarray):
            return {_TAG: "array", **self.add(name, value.copy())}
        if type(value) is list:
            plain = all(type(item) in _PLAIN for item in value)  # fast path for a long history
            return value if plain else self._pack_items(name, value)
        if type(value) is tuple:
            return {_TAG: "tuple", "items": self._pack_items(name, value)}
        if type(value) is dict and _TAG not in value and all(type(key) is str for key in value):
            return {key: self.pack(f"{name}[{key!r}]", item) for key, item in value.items()}
        raise HvdFtError(
            f"{name} cannot be kept in a snapshot: it is a {type(value).__name__}; keep None, "
            "bool, int, float, str, numpy arrays, and lists, tuples and dicts (with str keys) of "
            "these"
        )

    def _pack_items(self, name: str, values: Sequence[Any]) -> list[Any]:
        return [self.pack(f"{name}[{i}]", value) for i, value in enumerate(values)]


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _array(body: memoryview, entry: Mapping[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    return np.frombuffer(body, dtype, prod(shape), entry["offset"]).reshape(shape)


def _unpack(body: memoryview, value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(body, item) for item in value]
    if not isinstance(value, dict):
        return value
    match value.get(_TAG):
        case None:
            return {key: _unpack(body, item) for key, item in value.items()}
        case "tuple":
            return tuple(_unpack(body, item) for item in value["items"])
        case "array":
            return _array(body, value).copy()
        case "scalar":
            return _array(body, value)[()]
        case other:
            raise ValueError(other)
