"""Exports a rank's variables from a checkpoint by their names."""

import io
import re
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from hvd_ft.checkpoint.catalogue import Checkpoint
from hvd_ft.checkpoint.contents import RankArrays
from hvd_ft.errors import HvdFtError
from hvd_ft.system.writable import write_file

_NUMBERED = re.compile(r"\d+:(.+)")  # as hvd_ft.tensorflow.variables.read names them


def export(checkpoint: Checkpoint, output: Path, rank: int, loop: int | None) -> int:
    """Writes a file of variables.

    Args:
        checkpoint: one that can be used.
        output: the file; its suffix selects the format, .npz or .safetensors.
        rank: the rank whose variables to export; each rank has its own batch statistics.
        loop: number of the training loop; the latest one by default.

    Returns:
        The number of variables.

    Raises:
        HvdFtError: there is no such rank or loop, or another suffix; or the file cannot be written.
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
    arrays = by_name(dict(RankArrays(checkpoint.path, part)))
    if output.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        write_file(output, buffer.getvalue())
    else:
        write_file(output, save(arrays))
    return len(arrays)


def by_name(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns variables by their names; if several have the same name, later ones get a number."""
    named: dict[str, np.ndarray] = {}
    for key, array in arrays.items():
        match = _NUMBERED.fullmatch(key)
        name = match[1] if match else key
        count = 2
        while name in named:
            name, count = f"{match[1] if match else key}#{count}", count + 1
        named[name] = array
    return named
