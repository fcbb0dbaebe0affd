"""Keeps the buckets of DistributedDataParallel the same for the whole job.

PyTorch gathers gradients in buckets, and rebuilds these after the first step in the order in which
the gradients came. A restarted process that continues from a snapshot has not made that step, so
it would reduce other buckets than the other ranks. So they are built once, before the first step.
"""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from hvd_ft import native
from hvd_ft.torch import wrapped
from hvd_ft.torch.distributed.group import FtGroup
from hvd_ft.torch.distributed.static_graph import follow_first_pass
from hvd_ft.worker import without_snapshots

_REMEDY = "give the loop a hvd_ft.torch.State, and draw its batches by state.batches(loader)"
_begin = DistributedDataParallel.__init__  # PyTorch's


def pin_buckets(remedy: str = _REMEDY) -> None:
    """Pins those of all modules that are made from now on, if their group is hvd_ft's.

    Args:
        remedy: how a training gets snapshots, for the one that has none; that of the latest call.
    """

    @functools.wraps(_begin)
    def pinned(made: Any, /, *arguments: Any, **more: Any) -> None:
        lent = _lend_gradients(inspect.signature(_begin).bind(made, *arguments, **more).arguments)
        try:
            _begin(made, *arguments, **more)
            if isinstance(made.process_group, FtGroup):
                made.reducer._push_all_rebuilt_params()
                made.reducer._rebuild_buckets()
        finally:
            views = _take_back(lent)
        if isinstance(made.process_group, FtGroup):
            follow_first_pass(made, wrapped.add(made, views))
            worker = native.worker()
            if worker is not None and worker.rank == worker.incarnation == 0:
                made.register_forward_pre_hook(functools.partial(_look, remedy))

    DistributedDataParallel.__init__ = pinned


def _look(remedy: str, module: Any, _: Any) -> None:
    if module.module.training and torch.is_grad_enabled():  # Lightning leaves the wrapper in eval()
        without_snapshots.look(remedy)


_Lent = list[tuple[torch.nn.Parameter, torch.Tensor]]


def _lend_gradients(arguments: Mapping[str, Any]) -> _Lent:
    """Gives parameters gradients that PyTorch moves into its buckets when it builds these.

    With gradient_as_bucket_view=True gradients become views of the buckets in the first pass. What
    is a view is divided, and what is not is multiplied by the reciprocal: other bits.

    Args:
        arguments: those of DistributedDataParallel, by name.

    Returns:
        The parameters, and what they got.
    """
    if not arguments.get("gradient_as_bucket_view"):
        return []
    parameters = arguments["module"].parameters()
    lent = [
        (each, torch.zeros_like(each))
        for each in parameters
        if each.requires_grad and each.grad is None and not is_lazy(each)
    ]
    for parameter, gradient in lent:
        parameter.grad = gradient
    return lent


def _take_back(lent: _Lent) -> wrapped.Views:
    """Leaves parameters without gradients again; returns the views that these have become."""
    views = []
    for parameter, gradient in lent:
        found = parameter.grad
        if found is not None and found.data_ptr() != gradient.data_ptr():
            views.append((parameter, found))
        parameter.grad = None
    return views
