"""Adapts Lightning to a job: its ranks, its backend, its signals, and its broadcasts.

Lightning has no place where a launcher of its own could be registered, so the classes that look for
launchers are changed, in a job only.
"""

from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.connectors.accelerator_connector import _AcceleratorConnector
from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector
from torch.distributed import distributed_c10d as c10d

import hvd_ft.torch as hvd
from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed.buckets import pin_buckets
from hvd_ft.torch.distributed.group import NAME
from hvd_ft.torch.lightning.environment import JobEnvironment

_REMEDY = "give the Trainer callbacks=[hvd_ft.torch.lightning.Snapshots()]"


@cache
def adapt() -> None:
    """Adapts Lightning, if an agent has started this process."""
    if not native.in_job():
        return
    _AcceleratorConnector._choose_and_init_cluster_environment = _environment
    CPUAccelerator.auto_device_count = staticmethod(_ranks_of_host)
    DDPStrategy._configure_launcher = _start_nothing
    DDPStrategy._get_process_group_backend = _backend
    DDPStrategy.distributed_sampler_kwargs = property(_sampler_arguments)
    DDPStrategy.broadcast = _broadcast
    DDPStrategy.reduce = _with_means(DDPStrategy.reduce)
    # Lightning broadcasts in its handler of SIGTERM, while other ranks call other collectives.
    _SignalConnector.register_signal_handlers = _register_no_handlers
    _TrainingEpochLoop._broadcast_sigterm_tensor = _nothing
    pin_buckets(_REMEDY)


def _environment(_: Any) -> JobEnvironment:
    return JobEnvironment()


def _ranks_of_host() -> int:
    JobEnvironment()
    return int(hvd.local_size())


def _start_nothing(strategy: Any) -> None:
    if strategy._start_method != "popen":
        raise HvdFtError(
            f"DDPStrategy(start_method={strategy._start_method!r}) starts processes of its own, "
            "which the job does not know: leave start_method= out, or use strategy='ddp'"
        )


def _backend(strategy: Any) -> str:
    given = strategy._process_group_backend
    if given not in (None, NAME):
        raise HvdFtError(
            f"DDPStrategy(process_group_backend={given!r}) does not survive the death of a rank: "
            f"give {NAME!r}, or run the script without hvdft"
        )
    return NAME


def _sampler_arguments(strategy: Any) -> dict[str, int]:
    # Lightning multiplies hosts by devices; hosts of a job can have different numbers of ranks.
    return {"num_replicas": strategy.world_size, "rank": strategy.global_rank}


def _broadcast(strategy: Any, obj: Any, src: int = 0) -> Any:
    """Broadcasts an object as Lightning does, but its sender takes over what the others got.

    A restarted sender may come with another object than before, such as a path of a file with the
    next free number.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return obj
    group, device = dist.group.WORLD, torch.device("cpu")
    data, size = c10d._object_to_tensor(obj, device, group)
    dist.broadcast(size, src)
    if data.numel() != int(size):
        data = torch.zeros(int(size), dtype=torch.uint8)
    dist.broadcast(data, src)
    return c10d._tensor_to_object(data, int(size), group)


def _with_means(reduce: Any) -> Any:
    """Returns Lightning's function that reduces a tensor, with means of whole numbers.

    Lightning asks for these, as of the sizes of batches, and makes them of sums for Gloo.
    """

    def reduced(strategy: Any, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        is_mean = isinstance(reduce_op, str) and reduce_op.lower() in ("mean", "avg")
        if not is_mean or not isinstance(tensor, torch.Tensor) or tensor.is_floating_point():
            return reduce(strategy, tensor, group, reduce_op)
        total = reduce(strategy, tensor, group, "sum")
        return total.copy_(total / dist.get_world_size(group))

    return reduced


def _register_no_handlers(connector: Any) -> None:
    connector.received_sigterm = False


def _nothing(_: Any) -> None:
    pass
