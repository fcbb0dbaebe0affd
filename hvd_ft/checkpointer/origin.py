"""Where the checkpoints of a job come from, and where they go."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hvd_ft.checkpoint.catalogue import partial_path, removed_path
from hvd_ft.checkpoint.manifest import MANIFEST, name_of
from hvd_ft.checkpointer.cuts import Cut
from hvd_ft.native.checkpointer import Place
from hvd_ft.system.whole_file import write_through


@dataclass(frozen=True)
class Origin:
    """The job, this node, and the directory.

    Attributes:
        directory: of all checkpoints.
        job: the job's id.
        run: id of the first job in the series of jobs that resumed one from another.
        begun: when the job began, in seconds since 1970.
        place: of this node in the job.
        group: the nodes that see the same directory.
    """

    directory: Path
    job: str
    run: str
    begun: int
    place: Place
    group: Sequence[int]

    @property
    def leads(self) -> bool:
        """Whether this node completes the checkpoints of its group."""
        return self.place.node == min(self.group)

    @property
    def apart(self) -> bool:
        """Whether other nodes have a directory of their own."""
        return len(self.group) < self.place.nodes

    def path(self, cut: Cut) -> Path:
        """Returns the path of a cut's complete checkpoint."""
        return self.directory / name_of(self.job, cut.loop, cut.number)

    def partial(self, cut: Cut) -> Path:
        """Returns where it is until then."""
        return partial_path(self.directory, self.path(cut).name)

    def share(self, cut: Cut, node: int) -> Path:
        """Returns the file that lists what a node has written."""
        return self.partial(cut) / f"share-{node}.json"

    def prints(self, cut: Cut) -> Path:
        """Returns the file with fingerprints of the arrays that the group's first node writes."""
        return self.partial(cut) / "prints.json"

    @property
    def drained(self) -> Path:
        """The directory where nodes publish, at the end of a job, which cuts they have written."""
        return removed_path(self.directory, f"{self.job}-loops")

    def is_complete(self, cut: Cut) -> bool:
        """Whether the checkpoint of a cut is there already."""
        return (self.path(cut) / MANIFEST).is_file()

    def shares(self, cut: Cut) -> list[int]:
        """Returns the nodes of the group that have written their shares."""
        return [node for node in self.group if self.share(cut, node).exists()]


def write_file(path: Path, data: bytes, by: int = 0) -> None:
    """Writes a small file, for its owner only, that exists as a whole or not at all.

    Args:
        path: of the file.
        data: its contents.
        by: number of the node, where several may write it at the same time.
    """
    write_through(path, draft_of(path, by), data)


def draft_of(path: Path, by: int = 0) -> Path:
    """Returns the path at which `write_file` prepares a file."""
    return path.with_name(f".{path.name}.{by}")


def sync(directory: Path) -> None:
    """Waits until a directory's names are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
