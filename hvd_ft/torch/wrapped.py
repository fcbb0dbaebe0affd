"""What the wrappers of DistributedDataParallel remember of their passes.

A wrapper broadcasts buffers, such as those of BatchNorm, at the beginning of a pass only if
gradients were to be exchanged after the pass before it. With static_graph=True its first pass
reduces more than later ones, and with gradient_as_bucket_view=True gradients are in its buckets
from that pass on. A process that continues from a snapshot has not made these passes, so without
all this it would call other collectives than the other ranks, or add up other bits.
"""

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

_FLAGS = ("require_forward_param_sync", "require_backward_grad_sync")

Views = list[tuple[torch.nn.Parameter, torch.Tensor]]  # the place in a bucket for each gradient


@dataclass
class Wrapper:
    """A wrapper that the script has made.

    Attributes:
        module: the wrapper itself.
        views: the places of its gradients, if they are to be in buckets.
        made_first_pass: whether this process has made a first pass that exchanges gradients, with
            static_graph=True.
        used: how many ranks use each parameter, in PyTorch's order, int32; None before that pass,
            in this process and in earlier ones.
    """

    module: "weakref.ref[Any]"
    views: Views = field(default_factory=list)
    made_first_pass: bool = False
    used: torch.Tensor | None = None

    def state(self) -> dict[str, Any]:
        """Returns what is to be restored, for a snapshot."""
        return {
            "flags": [bool(getattr(self.module(), name, True)) for name in _FLAGS],
            "in_buckets": [_is_view(*pair) for pair in self.views],
            "used": None if self.used is None else self.used.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Sets what `state` returned; gradients have to be restored before."""
        module = self.module()
        if module is None:
            return
        for name, value in zip(_FLAGS, state["flags"], strict=True):
            setattr(module, name, value)
        for (parameter, view), in_bucket in zip(self.views, state["in_buckets"], strict=False):
            if in_bucket and parameter.grad is not None:
                parameter.grad = view.copy_(parameter.grad)
        if state["used"] is not None:
            self.used = torch.tensor(state["used"], dtype=torch.int32, device="cpu")


def _is_view(parameter: torch.nn.Parameter, view: torch.Tensor) -> bool:
    gradient = parameter.grad
    return gradient is not None and gradient.data_ptr() == view.data_ptr()


_wrappers: list[Wrapper] = []  # in the order in which the script makes them


def add(module: Any, views: Views) -> Wrapper:
    """Adds a wrapper that the script has made.

    Args:
        module: the wrapper.
        views: the places of its gradients in its buckets, if they are to be there.
    """
    _wrappers.append(Wrapper(weakref.ref(module), views))
    return _wrappers[-1]


def states() -> list[dict[str, Any]]:
    """Returns the states of all wrappers, for a snapshot."""
    return [each.state() for each in _wrappers]


def restore(kept: list[dict[str, Any]]) -> None:
    """Sets states that `states` returned; wrappers are those that the script has made by now."""
    for wrapper, state in zip(_wrappers, kept, strict=False):
        wrapper.restore(state)
