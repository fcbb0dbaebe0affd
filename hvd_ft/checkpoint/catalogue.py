"""The checkpoints in a directory, their state, and whether they are undamaged.

Only entries with the name of a checkpoint are considered; everything else in the directory is left
alone.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xxhash

from hvd_ft.checkpoint.manifest import (
    MANIFEST,
    File,
    Manifest,
    RefusedError,
    decode,
)
from hvd_ft.checkpoint.rules import Entry
from hvd_ft.errors import HvdFtError

_NAME = re.compile(r"(\w+)-loop(\d+)-step(\d+)(-end)?")
_PARTIAL, _REMOVED = ".partial", ".removed"
_MOST_MANIFEST_BYTES = 64 << 20
_CHUNK_BYTES = 8 << 20
_TIME_DIGITS = 6  # of a job id, in base 36


@dataclass(frozen=True)
class Checkpoint:
    """The directory of a checkpoint.

    Attributes:
        path: the directory's path.
        manifest: its manifest; None if there is none that can be read.
        refused: why it cannot be used; "" if it can.
        incomplete: whether it cannot be used because it was never finished.
        age: orders checkpoints: the older one is less.
    """

    path: Path
    manifest: Manifest | None
    refused: str = ""
    incomplete: bool = False
    age: tuple[int, str, int, int] = (0, "", 0, 0)

    @property
    def name(self) -> str:
        """Of the checkpoint, also while it is incomplete."""
        return self.path.name.removeprefix(".").removesuffix(_PARTIAL)

    @property
    def state(self) -> str:
        """In some words, for a table."""
        if self.manifest is None:
            return self.refused
        if self.manifest.apart:
            nodes = ", ".join(str(share.node) for share in self.manifest.shares)
            return f"the share of node {nodes} of {self.manifest.nodes}"
        if missing := self.manifest.missing:
            return f"without rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        return "complete"


def find(directory: Path) -> list[Checkpoint]:
    """Returns the checkpoints of a directory, oldest first, including those that cannot be used.

    Args:
        directory: a directory of checkpoints, or a checkpoint itself.

    Raises:
        HvdFtError: it is not a readable directory.
    """
    if (directory / MANIFEST).is_file() or directory.name.endswith(_PARTIAL):
        return [look_at(directory)]
    try:
        names = [entry.name for entry in os.scandir(directory) if entry.is_dir()]
    except OSError as error:
        raise HvdFtError(
            f"{directory} cannot be read ({error.strerror}): give the directory of --checkpoint-dir"
        ) from error
    ours = [
        name
        for name in names
        if _NAME.fullmatch(name) or (name.startswith(".") and name.endswith(_PARTIAL))
    ]
    found = [look_at(directory / name) for name in ours]
    jobs = {each.manifest.job: each.manifest.begun for each in found if each.manifest is not None}
    return sorted((replace(each, age=_age(each, jobs)) for each in found), key=lambda e: e.age)


def look_at(path: Path) -> Checkpoint:
    """Returns what lies in one directory."""
    if path.name.endswith(_PARTIAL):
        return Checkpoint(path, None, "it is incomplete", incomplete=True)
    try:
        with open(path / MANIFEST, "rb") as file:
            manifest = decode(file.read(_MOST_MANIFEST_BYTES))
    except FileNotFoundError:
        return Checkpoint(path, None, f"it has no {MANIFEST}", incomplete=True)
    except OSError as error:
        return Checkpoint(path, None, f"its manifest cannot be read ({error.strerror})")
    except RefusedError as error:
        return Checkpoint(path, None, str(error))
    return Checkpoint(path, manifest)


def _age(checkpoint: Checkpoint, jobs: Mapping[str, int]) -> tuple[int, str, int, int]:
    """Returns the key that orders checkpoints; without a manifest it is made from the name.

    Other checkpoints of the same job help too. The ids of jobs begin with the time.
    """
    if checkpoint.manifest is not None:
        return entry_of(checkpoint, checkpoint.manifest).age
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        return 0, checkpoint.name, 0, 0
    job, loop, step, end = match.groups()
    begun = 0
    with contextlib.suppress(ValueError):
        begun = int(job[:_TIME_DIGITS], 36)
    return jobs.get(job, begun), job, int(loop), 2 * int(step) + (2 if end else 1)


def entry_of(checkpoint: Checkpoint, manifest: Manifest) -> Entry:
    """Returns what the rules see of a checkpoint."""
    return Entry(
        checkpoint.name,
        manifest.run,
        manifest.begun,
        manifest.loop,
        manifest.cut,
        manifest.whole,
    )


def damage(path: Path, files: Iterable[tuple[str, File]]) -> list[str]:
    """Compares files with the manifest; returns what is wrong with each damaged one.

    Args:
        path: path of the checkpoint.
        files: the manifest's entries, by name.
    """
    found = []
    for name, file in files:
        try:
            there = hash_file(path / name)
        except OSError as error:
            found.append(f"{name} cannot be read ({error.strerror})")
            continue
        if there.bytes != file.bytes:
            found.append(f"{name} has {there.bytes} bytes instead of {file.bytes}")
        elif there != file:
            found.append(f"{name} is damaged (its hash is not the one in the manifest)")
    return found


def partial_path(directory: Path, name: str) -> Path:
    """Returns where a checkpoint is written until it is complete."""
    return directory / f".{name}{_PARTIAL}"


def removed_path(directory: Path, name: str) -> Path:
    """Returns the name for a directory that is no longer a checkpoint, or never will be."""
    return directory / f".{name}{_REMOVED}"


def remove(directory: Path, name: str) -> None:
    """Deletes a checkpoint; if this is interrupted, nothing that looks complete is left.

    Raises:
        OSError: it cannot be deleted.
    """
    away = removed_path(directory, name)
    with contextlib.suppress(FileNotFoundError):
        os.rename(directory / name, away)
    shutil.rmtree(away)


def remove_leftovers(directory: Path, jobs: Iterable[str]) -> None:
    """Deletes files left unfinished by writers of these jobs; none of them may be writing.

    Raises:
        OSError: something cannot be deleted.
    """
    prefixes = tuple(f".{job}-loop" for job in jobs)
    for entry in os.scandir(directory):
        if entry.name.startswith(prefixes) and entry.name.endswith((_PARTIAL, _REMOVED)):
            shutil.rmtree(entry.path, onerror=_unless_gone)


def _unless_gone(act: object, path: str, problem: Any) -> None:
    """Lets a deletion continue if files vanish, as another node may be deleting the same ones."""
    if not isinstance(problem[1], FileNotFoundError):
        raise problem[1]


def hash_file(path: Path) -> File:
    """Returns a file's length and hash.

    Raises:
        OSError: it cannot be read.
    """
    hashed, size = xxhash.xxh3_128(), 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hashed.update(chunk)
            size += len(chunk)
    return File(size, hashed.hexdigest())
