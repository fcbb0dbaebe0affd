"""Plain attributes of objects that a user has written, such as a module's list of losses."""

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

_LEAVES = (type(None), bool, int, float, complex, str, bytes)
_LISTS = (list, tuple, set, frozenset, deque)
_DICTS = (dict, OrderedDict, Counter)


def plain_attributes(value: Any, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Returns those attributes of an object that a snapshot can hold.

    Args:
        value: any object.
        leave_out: names of attributes that are not wanted.
    """
    return {
        name: each for name, each in vars(value).items() if name not in leave_out and is_plain(each)
    }


def set_attributes(value: Any, attributes: Mapping[str, Any]) -> None:
    """Sets attributes that `plain_attributes` returned."""
    vars(value).update(attributes)


def is_plain(value: Any) -> bool:
    """Returns whether a value is made of numbers, texts and tensors alone.

    A parameter is not: a list of a module's parameters has to stay one of these.
    """
    if type(value) in _LEAVES or isinstance(value, np.generic):
        return True
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    if isinstance(value, torch.Tensor):
        return type(value) is torch.Tensor and not value.requires_grad
    if type(value) in _DICTS:
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    return type(value) in _LISTS and all(is_plain(item) for item in value)
