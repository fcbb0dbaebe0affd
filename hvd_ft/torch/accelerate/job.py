"""Adapts Accelerate to a job: its ranks and its backend.

Accelerate takes Gloo for processes without a GPU, whatever it is told, and reads ranks from the
environment.
"""

import os
from functools import cache
from typing import Any

from accelerate.state import PartialState
from accelerate.utils import DistributedType

import hvd_ft.torch as hvd
from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed.buckets import pin_buckets
from hvd_ft.torch.distributed.group import NAME
from hvd_ft.torch.distributed.rendezvous import begin

_REMEDY = (
    "give the loop a hvd_ft.torch.accelerate.State, and draw its batches by state.batches(loader)"
)


@cache
def adapt() -> None:
    """Adapts Accelerate, if an agent has started this process.

    Raises:
        HvdFtError: the script has made an Accelerator before.
    """
    if not native.in_job():
        return
    if PartialState._shared_state:
        raise HvdFtError(
            "the script makes an Accelerator before it imports hvd_ft.torch.accelerate, so each "
            "rank would train alone: move the import up, or run the script without hvdft"
        )
    PartialState._prepare_backend = _backend
    pin_buckets(_REMEDY)


def _backend(_: Any, cpu: bool = False, sagemaker: bool = False, backend: str | None = None) -> Any:
    """Returns the backend's name and kind, in the place of Accelerate's own choice."""
    if backend not in (None, NAME):
        raise HvdFtError(
            f"InitProcessGroupKwargs(backend={backend!r}) does not survive the death of a rank: "
            f"give backend={NAME!r}, or run the script without hvdft"
        )
    begin()
    names = {
        "RANK": hvd.rank(),
        "WORLD_SIZE": hvd.size(),
        "LOCAL_RANK": hvd.local_rank(),
        "LOCAL_WORLD_SIZE": hvd.local_size(),
    }
    os.environ.update({name: str(number) for name, number in names.items()})
    # Accelerate asks for it on several hosts; the ranks of a job meet without it.
    os.environ.setdefault("MASTER_ADDR", "localhost")
    return NAME, DistributedType.MULTI_CPU
