"""Writes and reads the files of a checkpoint: safetensors.

This module writes files itself instead of using the library: it computes their hash on the way, a
disk error is an OSError, and nothing is kept in memory twice. The library reads them, and checks
them.
"""

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from safetensors import SafetensorError, safe_open

from hvd_ft.checkpoint.manifest import File
from hvd_ft.errors import HvdFtError
from hvd_ft.system.json_text import Kind, read_json_as

_CHUNK_BYTES = 8 << 20
_ALIGN = 8  # of the header
_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
# What a file is refused by that is damaged; names of types may be any.
_UNREADABLE = (OSError, SafetensorError, ValueError, TypeError, AttributeError)
_OTHER_TYPES = "dtypes"  # metadata: type and shape of what is stored as plain bytes


def write_tensors(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, str],
    go_on: Callable[[], None] = lambda: None,
) -> File:
    """Writes a new file, for its owner only, and waits until it is on the disk.

    Args:
        path: path of the file, which must not exist.
        tensors: by name, any shapes, little endian. Types that safetensors or NumPy does not know
            (bfloat16) are stored as bytes.
        metadata: texts by name.
        go_on: called between writes; what it raises ends the writing.

    Returns:
        The file's length and hash.

    Raises:
        OSError: it cannot be written.
    """
    plain, others = {}, {}
    for name, array in tensors.items():
        data = np.ascontiguousarray(array)
        if data.dtype.name not in _NAMES:
            others[name] = [data.dtype.name, list(array.shape)]
            data = data.reshape(-1).view(np.uint8)
        plain[name] = data.reshape(np.shape(data) if name in others else array.shape)
    more = {_OTHER_TYPES: json.dumps(others)} if others else {}
    # Wide types first, so that every tensor is aligned to its type.
    names = sorted(plain, key=lambda name: -plain[name].dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": {**metadata, **more}}
    end = 0
    for name in names:
        data, begin = plain[name], end
        end += data.nbytes
        offsets = [begin, end]
        header[name] = {
            "dtype": _NAMES[data.dtype.name],
            "shape": list(data.shape),
            "data_offsets": offsets,
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    hashed, size = xxhash.xxh3_128(), 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        buffers = (_bytes(plain[name]) for name in names)
        for view in (memoryview(struct.pack("<Q", len(text)) + text), *buffers):
            size += view.nbytes
            at = 0
            while at < view.nbytes:
                go_on()
                done = os.write(file, view[at : at + _CHUNK_BYTES])
                hashed.update(view[at : at + done])
                at += done
        os.fsync(file)
    finally:
        os.close(file)
    return File(size, hashed.hexdigest())


class Tensors(Mapping[str, np.ndarray]):
    """A file that `write_tensors` has written; arrays are read when they are accessed.

    Args:
        path: path of the file.

    Attributes:
        metadata: texts by name.

    Raises:
        HvdFtError: it cannot be read, or is not such a file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = safe_open(str(path), framework="np")
            self.metadata: dict[str, str] = self._file.metadata() or {}
            self._names = list(self._file.keys())
            others = self.metadata.pop(_OTHER_TYPES, "{}").encode()
            self._others = read_json_as(others, dict[str, tuple[str, list[int]]])
        except _UNREADABLE as error:
            raise self._refused(error) from error

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        try:
            array: np.ndarray = self._file.get_tensor(name)
            if name in self._others:
                dtype, shape = self._others[name]
                return array.view(_dtype(dtype)).reshape(shape)
        except _UNREADABLE as error:
            raise self._refused(error) from error
        return array

    def listed(self, name: str, kind: type[Kind]) -> Kind:
        """Returns the list of that kind that the metadata have under a name.

        Raises:
            HvdFtError: there is no such list.
        """
        try:
            return read_json_as(self.metadata.get(name, "").encode(), kind)
        except ValueError as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> HvdFtError:
        return HvdFtError(
            f"{self._path} cannot be read ({error}): hvdft checkpoint verify tells which "
            "checkpoints are whole"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # comes with TensorFlow

        return np.dtype(getattr(ml_dtypes, name))


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
