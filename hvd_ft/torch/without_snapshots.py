"""Notices a training that has no snapshots when its optimizer exchanges its first gradients."""

import functools
from functools import cache
from typing import Any

from horovod.torch import optimizer

from hvd_ft import native
from hvd_ft.worker import without_snapshots

REMEDY = "give the loop a hvd.State, and draw its batches by state.batches(loader)"


def watch_trainings(worker: native.Worker) -> None:
    """Checks each training that begins, if this process is the one that warns."""
    if worker.rank == 0 and worker.incarnation == 0:
        _watch()


@cache
def _watch() -> None:
    synchronize = optimizer._DistributedOptimizer.synchronize

    @functools.wraps(synchronize)
    def watched(self: Any) -> None:
        without_snapshots.look(REMEDY)
        synchronize(self)

    # Horovod copies this class's functions into the class of each optimizer that it makes.
    optimizer._DistributedOptimizer.synchronize = watched
