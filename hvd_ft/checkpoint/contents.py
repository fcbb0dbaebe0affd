"""The files of a checkpoint: arrays of one rank, and arrays that ranks have in common.

A rank's own file contains its own arrays, its values in the form of snapshots, and the order of all
arrays. A node's file contains the arrays that are equal on all ranks of the node. Each rank may
have another name for these, so they are found by their number in that order.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from hvd_ft.checkpoint.manifest import Part
from hvd_ft.checkpoint.tensors import Tensors
from hvd_ft.errors import HvdFtError

_VALUES = "hvd_ft.values"
_ORDER, _NUMBERS = "order", "numbers"  # metadata


def rank_file(loop: int, rank: int) -> str:
    """Returns the name of a rank's file."""
    return f"loop{loop}-rank{rank}.safetensors"


def node_file(loop: int, node: int) -> str:
    """Returns the name of a node's file."""
    return f"loop{loop}-node{node}.safetensors"


def of_rank(
    own: Mapping[str, np.ndarray], values: np.ndarray, order: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Returns tensors and metadata of a rank's file.

    Args:
        own: arrays that are in no other file.
        values: the values, as bytes.
        order: the names of all arrays of the rank.
    """
    return {**own, _VALUES: values}, {_ORDER: json.dumps(list(order))}


def of_node(
    common: Mapping[str, np.ndarray], order: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Returns tensors and metadata of a node's file.

    Args:
        common: arrays by the names that the node's first rank has for them.
        order: the names of all arrays of that rank.
    """
    numbers = {name: number for number, name in enumerate(order) if name in common}
    return dict(common), {_NUMBERS: json.dumps(numbers)}


class RankArrays(Mapping[str, np.ndarray]):
    """A rank's snapshot in its order; arrays are read when they are accessed.

    Args:
        directory: the checkpoint's directory.
        part: the rank's part in its manifest.

    Raises:
        HvdFtError: files cannot be read, or lack an array.
    """

    def __init__(self, directory: Path, part: Part) -> None:
        self._own, *shared = [Tensors(directory / name) for name in part.files]
        common: dict[int, tuple[Tensors, str]] = {}
        for file in reversed(shared):
            numbers = file.listed(_NUMBERS, dict[str, int])
            common |= {number: (file, name) for name, number in numbers.items() if name in file}
        self._places: dict[str, tuple[Tensors, str]] = {}
        self._directory, self._rank = directory, part.rank
        for number, name in enumerate(self._own.listed(_ORDER, list[str])):
            if name not in self._own and number not in common:
                raise self._lacks(name)
            self._places[name] = (self._own, name) if name in self._own else common[number]

    @property
    def frozen_values(self) -> memoryview:
        """The snapshot's values, as bytes."""
        if _VALUES not in self._own:
            raise self._lacks("the values")
        return self._own[_VALUES].reshape(-1).view(np.uint8).data

    def _lacks(self, what: str) -> HvdFtError:
        return HvdFtError(
            f"{self._directory} lacks {what} of rank {self._rank}: hvdft checkpoint verify tells "
            "which checkpoints are whole"
        )

    def __getitem__(self, name: str) -> np.ndarray:
        file, theirs = self._places[name]
        return file[theirs]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
