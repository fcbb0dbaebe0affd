"""Exports a rank's variables from a checkpoint by their names.

Those of PyTorch are named by the value of State and the name in its `state_dict`:
`model.fc.weight`.
"""

import io
import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from safetensors.numpy import save

from hvd_ft.checkpoint.catalogue import Checkpoint
from hvd_ft.checkpoint.contents import RankArrays
from hvd_ft.errors import HvdFtError
from hvd_ft.system.json_text import read_json
from hvd_ft.system.writable import write_file

# As hvd_ft.tensorflow.variables.read and hvd_ft.torch.tensors.Arrays name them; the latter adds the
# type of what NumPy can only hold as unsigned integers.
_NUMBERED = re.compile(r"\d+:(.+?)(?:\|(\w+))?")


_TYPES = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}

Value = TypeVar("Value")


def export(
    checkpoint: Checkpoint, output: Path, rank: int, loop: int | None, only: str | None = None
) -> int:
    """Writes a file of variables.

    Args:
        checkpoint: one that can be used.
        output: the file; its suffix selects the format, .npz or .safetensors.
        rank: the rank whose variables to export; each rank has its own batch statistics.
        loop: number of the training loop; the latest one by default.
        only: the value of PyTorch's State whose tensors to export, named as in its `state_dict`;
            None: all variables.

    Returns:
        The number of variables.

    Raises:
        HvdFtError: there is no such rank, loop or value, or another suffix; or the file cannot be
            written.
    """
    manifest = checkpoint.manifest
    assert manifest is not None
    number = manifest.loop if loop is None else loop
    part = manifest.part(rank, number)
    if part is None:
        raise HvdFtError(
            f"{checkpoint.path} has no rank {rank} in training loop {number}: give --rank and "
            "--loop as hvdft checkpoint list shows them"
        )
    if output.suffix not in (".npz", ".safetensors"):
        raise HvdFtError(f"{output} is no file for an export: let it end in .npz or .safetensors")
    arrays = dict(RankArrays(checkpoint.path, part))
    if only is not None:
        arrays = of_value(arrays, only)
        if not arrays:
            raise HvdFtError(
                f"{checkpoint.path} has no tensors of a value {only}: give --only a name that "
                "hvd.State was given"
            )
    if output.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **by_name(arrays))
        write_file(output, buffer.getvalue())
    else:
        types = by_name({key: _type(key) for key in arrays})
        write_file(output, with_types(save(by_name(arrays)), types))
    return len(arrays)


def of_value(arrays: Mapping[str, np.ndarray], only: str) -> dict[str, np.ndarray]:
    """Returns the arrays of one value of PyTorch's State, without the value's name."""
    found = {}
    for key, array in arrays.items():
        number, _, name = key.partition(":")
        if name.startswith(f"{only}."):
            found[f"{number}:{name.removeprefix(f'{only}.')}"] = array
    return found


def with_types(file: bytes, types: Mapping[str, str]) -> bytes:
    """Returns a safetensors file whose header says what its unsigned integers really are.

    Args:
        file: as safetensors makes it.
        types: torch's names of types by names of tensors; "" and those that safetensors lacks
            change nothing.
    """
    (length,) = struct.unpack_from("<Q", file)
    header = read_json(file[8 : 8 + length])
    for name, kind in types.items():
        header[name]["dtype"] = _TYPES.get(kind, header[name]["dtype"])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # as safetensors aligns tensors
    return struct.pack("<Q", len(text)) + text + file[8 + length :]


def _type(key: str) -> str:
    match = _NUMBERED.fullmatch(key)
    return (match and match[2]) or ""


def by_name(arrays: Mapping[str, Value]) -> dict[str, Value]:
    """Returns variables by their names; if several have the same name, later ones get a number."""
    named: dict[str, Value] = {}
    for key, array in arrays.items():
        match = _NUMBERED.fullmatch(key)
        name = match[1] if match else key
        count = 2
        while name in named:
            name, count = f"{match[1] if match else key}#{count}", count + 1
        named[name] = array
    return named
