"""Which files agents compare before a job goes on from a checkpoint."""

from pathlib import Path

import numpy as np
import pytest

from hvd_ft.agent.resuming import _checked
from hvd_ft.checkpoint.catalogue import look_at
from hvd_ft.checkpoint.manifest import decode
from hvd_ft.checkpointer.capture import Captured
from hvd_ft.checkpointer.completion import complete
from hvd_ft.checkpointer.cuts import Cut
from hvd_ft.checkpointer.origin import Origin
from hvd_ft.checkpointer.share import Began, write_share
from hvd_ft.errors import HvdFtError
from hvd_ft.native.checkpointer import Place
from hvd_ft.worker.shared_contents import Contents, freeze

RANKS, CUT = 3, Cut(0, 11)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of three ranks, each with something of its own."""
    origin = Origin(tmp_path, "job1", "job1", 5, Place(RANKS, 1, 0, 0, RANKS), [0])

    def snapshot(rank: int) -> Captured:
        kept, values = freeze({"own": np.array(rank)}, {"step": 5, "rng": {}})
        return Captured(5, Contents(kept, values.data, frozenset()))

    captured = {CUT: {rank: snapshot(rank) for rank in range(RANKS)}}
    began = Began.now()
    write_share(origin, CUT, captured, ([], []), range(RANKS), began=began, await_seconds=0.0)
    complete(origin, CUT, [0])
    return origin.path(CUT)


def damage(checkpoint: Path, rank: int) -> str:
    """Damages a file that only this rank has; returns its name."""
    manifest = look_at(checkpoint).manifest
    assert manifest
    others = [other for other in range(RANKS) if other != rank]
    [name] = manifest.files_of([rank]).keys() - manifest.files_of(others).keys()
    path = checkpoint / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return name


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_rank_with_a_part_of_its_own_has_its_files_compared(checkpoint: Path, rank: int) -> None:
    name = damage(checkpoint, rank)
    with pytest.raises(HvdFtError, match=f"cannot be used: {name} is damaged"):
        _checked(checkpoint, [rank])
    others = [other for other in range(RANKS) if other != rank]
    assert decode(_checked(checkpoint, others).encode()).size == RANKS


def test_a_rank_without_one_has_those_compared_that_it_will_read(checkpoint: Path) -> None:
    assert _checked(checkpoint, [RANKS])
    name = damage(checkpoint, 0)
    with pytest.raises(HvdFtError, match=f"cannot be used: {name} is damaged"):
        _checked(checkpoint, [RANKS])


def test_a_checkpoint_that_has_gone_meanwhile_is_named(tmp_path: Path) -> None:
    with pytest.raises(HvdFtError, match=r"the checkpoint .* has gone"):
        _checked(tmp_path / "none", [0])
