"""Keeps the buckets of DistributedDataParallel the same for the whole job.

PyTorch gathers gradients in buckets, and rebuilds these after the first step in the order in which
the gradients came. A restarted process that continues from a snapshot has not made that step, so
it would reduce other buckets than the other ranks. So they are built once, before the first step.
"""

import functools
from functools import cache
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.torch import wrapped
from hvd_ft.torch.distributed.group import FtGroup
from hvd_ft.worker import training_loop, without_snapshots

REMEDY = "give the loop a hvd_ft.torch.State, and draw its batches by state.batches(loader)"


@cache
def pin_buckets() -> None:
    """Pins those of all modules that are made from now on, if their group is hvd_ft's."""
    begin = DistributedDataParallel.__init__

    @functools.wraps(begin)
    def pinned(made: Any, /, *arguments: Any, **more: Any) -> None:
        begin(made, *arguments, **more)
        if isinstance(made.process_group, FtGroup):
            made.reducer._push_all_rebuilt_params()
            made.reducer._rebuild_buckets()
            wrapped.add(made)
            if made.static_graph:
                made.register_forward_pre_hook(_check_static_graph)
            worker = native.worker()
            if worker is not None and worker.rank == worker.incarnation == 0:
                made.register_forward_pre_hook(_look)

    DistributedDataParallel.__init__ = pinned


def _look(module: Any, _: Any) -> None:
    if module.module.training and torch.is_grad_enabled():  # Lightning leaves the wrapper in eval()
        without_snapshots.look(REMEDY)


def _check_static_graph(module: Any, _: Any) -> None:
    """Refuses snapshots for a module that reduces more in its first step than in later ones.

    A process that continues from a snapshot would do that alone.
    """
    if module.module.training and training_loop.is_open():
        raise HvdFtError(
            "DistributedDataParallel(static_graph=True) cannot continue from snapshots: leave "
            "static_graph out, with find_unused_parameters=True if needed, or hvd_ft.torch.State"
        )
