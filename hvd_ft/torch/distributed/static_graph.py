"""Lets DistributedDataParallel(static_graph=True) continue from snapshots.

In its first pass that exchanges gradients, PyTorch also reduces a map of the parameters that any
rank has used, and keeps the map. A process that continues from a snapshot makes its first pass when
the other ranks make a later one. So it takes the map from the snapshot, and reduces what they do.
"""

import weakref
from typing import Any

import torch

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed.group import FtGroup
from hvd_ft.torch.wrapped import Wrapper
from hvd_ft.worker import training_loop


def follow_first_pass(module: Any, record: Wrapper) -> None:
    """Follows a wrapper up to its first pass that exchanges gradients.

    Args:
        module: made by DistributedDataParallel, its group an FtGroup.
        record: of it; has the map, or gets it.
    """

    def look(module: Any, _: Any) -> None:
        if not module.static_graph or not torch.is_grad_enabled():
            return
        if not module.require_backward_grad_sync and training_loop.is_open():
            # PyTorch takes what passes count before its first exchange for what one pass counts.
            raise HvdFtError(
                "DistributedDataParallel(static_graph=True) cannot continue from snapshots with "
                "no_sync(), as PyTorch then has to begin with a pass that exchanges gradients: "
                "leave out static_graph, no_sync or hvd_ft.torch.State"
            )
        if not record.made_first_pass and not isinstance(module.reducer, _FirstPass):
            module.reducer = _FirstPass(module, record)

    module.register_forward_pre_hook(look)


class _FirstPass:
    """Stands in the place of a wrapper's reducer until the first pass is over.

    Args:
        module: the wrapper.
        record: as above.
    """

    def __init__(self, module: Any, record: Wrapper) -> None:
        self._module = weakref.ref(module)
        self._reducer = module.reducer
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _delay_all_reduce(self) -> None:
        """Reduces map and gradients, at the end of the first pass."""
        module = self._module()
        if module is None:
            return
        module.reducer, self._record.made_first_pass = self._reducer, True
        group: FtGroup = module.process_group
        with group.first_pass(self._record):
            self._reducer._delay_all_reduce()
