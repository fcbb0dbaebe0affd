"""Makes the backend known to torch.distributed; rank, size and store come from the job."""

import importlib
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch.distributed as dist

import hvd_ft.torch as hvd
from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed.buckets import pin_buckets
from hvd_ft.torch.distributed.group import NAME, FtGroup, next_number
from hvd_ft.torch.distributed.members import members
from hvd_ft.torch.distributed.store import is_own, own_store
from hvd_ft.torch.waits import report_none

_DYNAMIC = "HOROVOD_DYNAMIC_PROCESS_SETS"
_BARRIER = "TORCH_DIST_INIT_BARRIER"


@cache
def register() -> None:
    """Registers the backend, and in a job the place where ranks meet."""
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    if native.in_job():
        os.environ.setdefault(_DYNAMIC, "1")  # for new_group, before Horovod is initialised
        # The usual one has a server in rank 0's process, and would end with it.
        handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
        handlers["env"] = _meet
        pin_buckets()
        report_none()


def _meet(url: str, **_: Any) -> Iterator[tuple[dist.Store, int, int]]:
    begin()
    yield own_store(), hvd.rank(), hvd.size()


def _create(options: Any, _: Any) -> FtGroup:
    """Makes the group of all ranks; others are made by it."""
    begin()
    _check_meeting(options.store)
    if options.group_size != hvd.size():
        raise HvdFtError(
            f"the group of all ranks has {options.group_size}, but the job has {hvd.size()}: leave "
            "rank= and world_size= out of init_process_group"
        )
    its = members(range(hvd.size()), hvd.size())
    return FtGroup(str(options.group_id), next_number(), its, hvd.rank())


def _check_meeting(store: dist.Store) -> None:
    """Refuses what would wait in a store: at once, or when rank 0 comes back without its server."""
    if os.environ.get(_BARRIER, "0") != "0":
        raise HvdFtError(
            f"{_BARRIER}=1 would wait for other ranks in a store, and on the backend hvd_ft each "
            "rank has its own: leave it out, and call dist.barrier() where it is needed"
        )
    if not is_own(store):
        raise HvdFtError(
            "the backend hvd_ft needs no other place where ranks meet, and rank 0 would wait there "
            "after a restart: leave init_method= and store= out of init_process_group"
        )


def begin() -> None:
    """Initialises Horovod in a job, unless that is done.

    Raises:
        HvdFtError: there is no agent.
    """
    if not hvd.enabled():
        raise HvdFtError("the backend hvd_ft needs an agent: start the script with 'hvdft run'")
    if not hvd.is_initialized():
        hvd.init()
