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

_DYNAMIC = "HOROVOD_DYNAMIC_PROCESS_SETS"


@cache
def register() -> None:
    """Registers the backend, and in a job the place where ranks meet."""
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    if native.in_job():
        os.environ.setdefault(_DYNAMIC, "1")  # for new_group, before Horovod is initialised
        # The usual one has a server in rank 0's process, and would end with it.
        handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
        handlers["env"] = _meet
        pin_buckets()


def _meet(url: str, **_: Any) -> Iterator[tuple[dist.Store, int, int]]:
    _init()
    yield dist.HashStore(), hvd.rank(), hvd.size()


def _create(options: Any, _: Any) -> FtGroup:
    """Makes the group of all ranks; others are made by it."""
    _init()
    if options.group_size != hvd.size():
        raise HvdFtError(
            f"the group of all ranks has {options.group_size}, but the job has {hvd.size()}: leave "
            "rank= and world_size= out of init_process_group"
        )
    its = members(range(hvd.size()), hvd.size())
    return FtGroup(str(options.group_id), next_number(), its, hvd.rank())


def _init() -> None:
    if not hvd.enabled():
        raise HvdFtError("the backend hvd_ft needs an agent: start the script with 'hvdft run'")
    if not hvd.is_initialized():
        hvd.init()
