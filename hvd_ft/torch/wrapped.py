"""What the wrappers of DistributedDataParallel remember of their latest forward pass.

A wrapper broadcasts buffers, such as those of BatchNorm, at the beginning of a pass only if
gradients were to be exchanged after the pass before it. A process that continues from a snapshot
has not made that pass, so without this it would call other collectives than the other ranks.
"""

import weakref
from typing import Any

_FLAGS = ("require_forward_param_sync", "require_backward_grad_sync")
_wrappers: list[weakref.ref[Any]] = []  # in the order in which the script makes them


def add(wrapper: Any) -> None:
    """Adds a wrapper that the script has made."""
    _wrappers.append(weakref.ref(wrapper))


def flags() -> list[list[bool]]:
    """Returns the flags of all wrappers, for a snapshot."""
    return [[bool(getattr(each(), name, True)) for name in _FLAGS] for each in _wrappers]


def restore_flags(kept: list[list[bool]]) -> None:
    """Sets flags that `flags` returned; wrappers are those that the script has made by now."""
    for reference, values in zip(_wrappers, kept, strict=False):
        wrapper = reference()
        if wrapper is not None:
            for name, value in zip(_FLAGS, values, strict=True):
                setattr(wrapper, name, value)
