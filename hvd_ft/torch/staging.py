"""Takes tensors of a device, such as a GPU, through the host's memory, where ring and log work.

Horovod's operations get copies in host memory. What they return there is copied to the device when
the script waits for it, before it goes on.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from horovod.torch import mpi_ops

from hvd_ft.torch.op_names import OPERATIONS

_WAIT = "horovod_torch_wait_and_clear"  # all functions of Horovod wait in it

Pairs = list[tuple[torch.Tensor, torch.Tensor]]  # in host memory, and on the device

_started: dict[int, Pairs] = {}  # by Horovod's handle: what is to be copied to the device


def stage_operations() -> None:
    """Replaces the functions through which all of Horovod's collectives for tensors go."""
    for name in OPERATIONS:
        setattr(mpi_ops, name, _staged(getattr(mpi_ops, name)))
    setattr(mpi_ops.mpi_lib, _WAIT, _finishing(getattr(mpi_ops.mpi_lib, _WAIT)))


def is_away(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is on a device of its own."""
    return bool(tensor.device.type != "cpu")


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor's copy in host memory, in page-locked memory if a CUDA device copies it.

    It is complete when this returns, whatever the device still does. A tensor of the CPU is
    returned itself.
    """
    tensor = tensor.detach()
    if not (tensor.is_cuda and tensor.layout is torch.strided):
        return tensor.cpu()
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True).copy_(
        tensor
    )


def to_device(pairs: Pairs) -> None:
    """Copies results to their device; they are complete there when this returns."""
    with torch.no_grad():
        for host, device in pairs:
            if device.shape != host.shape:  # Horovod makes those of gathered rows empty
                device.resize_(host.shape)
            device.copy_(host)


def _staged(operation: Callable[..., int]) -> Callable[..., int]:
    parameters = list(inspect.signature(operation).parameters)
    (results_at,) = [at for at, each in enumerate(parameters) if each in ("output", "outputs")]

    @functools.wraps(operation)
    def start(*arguments: Any) -> int:  # Horovod gives all of them by position
        inputs, results = _listed(arguments[0]), _listed(arguments[results_at])
        if not any(map(is_away, inputs)):
            return operation(*arguments)
        copies = {id(each): on_host(each) for each in inputs}
        # In place, the copy of the input is that of the result.
        hosts = [
            copies[id(each)]
            if id(each) in copies
            else torch.empty(each.shape, dtype=each.dtype, device="cpu")
            for each in results
        ]
        given = list(arguments)
        given[0] = _like(arguments[0], [copies[id(each)] for each in inputs])
        given[results_at] = _like(arguments[results_at], hosts)
        handle = operation(*given)
        pairs = [pair for pair in zip(hosts, results, strict=True) if is_away(pair[1])]
        _started[handle] = pairs
        mpi_ops._handle_map[handle] = _with_results(mpi_ops._handle_map[handle], pairs)
        return handle

    return start


def _finishing(wait: Callable[[int], Any]) -> Callable[[int], Any]:
    @functools.wraps(wait)
    def finish(handle: int) -> Any:
        pairs = _started.pop(handle, [])
        found = wait(handle)
        to_device(pairs)
        return found

    return finish


def _with_results(entry: Any, pairs: Pairs) -> Any:
    """Returns what Horovod keeps of an operation, with the script's tensors as its results."""
    if isinstance(entry, tuple):
        return tuple(_with_results(each, pairs) for each in entry)
    return next((device for host, device in pairs if host is entry), entry)


def _listed(tensors: Any) -> Sequence[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _like(tensors: Any, copies: list[torch.Tensor]) -> Any:
    return copies[0] if isinstance(tensors, torch.Tensor) else copies
