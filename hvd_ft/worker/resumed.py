"""The checkpoint from which this job was resumed, as one of its ranks sees it."""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hvd_ft.checkpoint.catalogue import look_at
from hvd_ft.checkpoint.contents import RankArrays
from hvd_ft.checkpoint.manifest import Manifest
from hvd_ft.errors import HvdFtError
from hvd_ft.system.json_text import read_json
from hvd_ft.worker.shared_contents import thawed

VARIABLE = "HOROVOD_FT_RESUMED"  # set by the agent, which has compared the files with the manifest


class ResumedLoops:
    """The training loops that resume from a checkpoint.

    Args:
        directory: directory of the checkpoint.
        manifest: its manifest.
        loops: numbers of those loops.
        rank: this process's rank.
        size: number of ranks of the job.

    Attributes:
        resized: number of ranks of the job that wrote it and of this job, if they differ; else
            None.
        own: whether this rank's own part exists; otherwise another rank's is read.
    """

    def __init__(
        self, directory: Path, manifest: Manifest, loops: list[int], rank: int, size: int
    ) -> None:
        self._directory = directory
        self._manifest = manifest
        self._loops = loops
        there = sorted({part.rank for part in manifest.parts})
        self.own = rank in there
        self._rank = rank if self.own else there[0]
        self.resized = (manifest.size, size) if manifest.size != size else None

    def has(self, loop: int) -> bool:
        """Returns whether a training loop continues from here."""
        return loop in self._loops

    def read(self, loop: int) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Returns arrays and values of a loop's snapshot; arrays are read when they are asked for.

        A rank without its own part gets no states of generators.

        Raises:
            HvdFtError: the files cannot be read.
        """
        part = self._manifest.part(self._rank, loop)
        assert part is not None, "agents have found the loop"
        arrays = RankArrays(self._directory, part)
        values = thawed(arrays.frozen_values)
        if not self.own and "rng" in values:
            values["rng"] = {}
        return arrays, values

    def latest_values(self) -> dict[str, Any]:
        """Returns the values of the latest loop; none if no loop resumes."""
        return self.read(max(self._loops))[1] if self._loops else {}


@cache
def resumed(rank: int, size: int) -> ResumedLoops | None:
    """Returns the loops that this job resumes; None if it did not resume.

    Raises:
        HvdFtError: it cannot be read.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    told = read_json(text)
    found = look_at(Path(told["path"]))
    if found.manifest is None:
        raise HvdFtError(
            f"the checkpoint {told['path']}, from which this job went on, cannot be read any more "
            f"({found.refused}): start the job again"
        )
    return ResumedLoops(Path(told["path"]), found.manifest, told["loops"], rank, size)
