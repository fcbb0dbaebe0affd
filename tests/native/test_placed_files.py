"""Files of a job have their memory where the context says, and only those that it made."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hvd_ft import native
from hvd_ft.system.process_placement import memory_of
from hvd_ft.system.topology import allowed_nodes

NUMA = Path("/proc/self/numa_maps").is_file()
LIMIT = 64 << 20


@contextmanager
def mapped(path: Path) -> Iterator[str]:
    """The policy of a file that this process has mapped."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
    try:
        [part] = [part for part in memory_of(os.getpid()) if part.file == str(path)]
        yield part.policy
    finally:
        data.close()


@pytest.mark.skipif(not NUMA, reason="this kernel has no NUMA")
def test_only_files_made_in_the_context_have_a_place(arena_dir: Path) -> None:
    node = allowed_nodes()[0]
    with native.files_on([node]) as problem:
        assert problem == ""
        native.create_rank(str(arena_dir), "numa", 0, LIMIT)
    native.create_rank(str(arena_dir), "numa", 1, LIMIT)
    with mapped(arena_dir / "rank-0.arena") as policy:
        assert policy == f"prefer:{node}"
    with mapped(arena_dir / "rank-1.arena") as policy:
        assert policy == "default"


def test_where_it_cannot_be_files_are_made_all_the_same(arena_dir: Path) -> None:
    with native.files_on([4000]) as problem:
        assert problem == "there is no NUMA node 4000; see numactl -H"
        native.create_rank(str(arena_dir), "numa", 0, LIMIT)
    assert (arena_dir / "rank-0.arena").is_file()
