"""Collectives of a process group on tensors of a device: they work on copies in host memory."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from hvd_ft.torch.distributed.work import of_future
from hvd_ft.torch.staging import Pairs, is_away, on_host, to_device


def takes_devices(collective: Callable[..., dist.Work]) -> Callable[..., dist.Work]:
    """Returns a collective that takes tensors of any device.

    Args:
        collective: that takes tensors of the CPU. Its first argument has all its outputs, if there
            are any: a tensor, or lists of tensors.
    """

    @functools.wraps(collective)
    def call(group: Any, *arguments: Any, **named: Any) -> dist.Work:
        copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        outputs = _copied(list(arguments[:1]), copies)
        pairs: Pairs = list(copies.values())
        inputs = _copied(list(arguments[1:]), copies)
        work = collective(group, *outputs, *inputs, **named)
        if not copies:
            return work

        def finish(done: Any) -> Any:
            done.value()  # raises what the collective has
            to_device(pairs)
            return _flat(arguments[0])

        return of_future(work.get_future().then(finish))

    return call


def _copied(value: Any, copies: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Returns an argument with copies in the place of a device's tensors, each copied once."""
    if isinstance(value, torch.Tensor):
        if not is_away(value):
            return value
        if id(value) not in copies:
            copies[id(value)] = on_host(value), value
        return copies[id(value)][0]
    return [_copied(each, copies) for each in value] if isinstance(value, list) else value


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for each in value for tensor in _flat(each)]
