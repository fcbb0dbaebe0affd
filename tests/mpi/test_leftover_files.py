"""Files that Intel MPI leaves in shared memory when it is killed while it starts."""

import mmap
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_ft.mpi import leftover_files


@pytest.fixture
def file() -> Iterator[Path]:
    path = Path(f"/dev/shm/Intel_MPI_{uuid.uuid4().hex[:6]}")
    path.write_bytes(b"x" * 192)
    yield path
    path.unlink(missing_ok=True)


def test_a_file_that_nobody_has_is_removed(file: Path) -> None:
    assert file.name in leftover_files.sweep()
    assert not file.exists()


def test_an_open_file_stays(file: Path) -> None:
    with file.open():
        assert file.name not in leftover_files.sweep()
    assert file.exists()


def test_a_mapped_file_stays(file: Path) -> None:
    descriptor = os.open(file, os.O_RDWR)
    with mmap.mmap(descriptor, 192):
        os.close(descriptor)
        # mmap keeps a descriptor of its own, so both ways to have a file are seen here at once.
        assert file.name not in leftover_files.sweep()
    assert file.exists()


def test_a_file_of_another_user_stays(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a file to another user needs root")
    os.chown(file, 12345, -1)
    assert file.name not in leftover_files.sweep()
    assert file.exists()
