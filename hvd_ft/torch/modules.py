"""What a snapshot keeps of a module: parameters and buffers, and what decides how they are used."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.packing import pack, unpack
from hvd_ft.torch.tensors import Arrays, made, set_in_place

_EXTRA = "_extra_state"  # as torch names what a module's get_extra_state returns


def parameter_names(modules: Mapping[str, torch.nn.Module]) -> dict[int, str]:
    """Returns the names of all parameters of modules, by their ids.

    Args:
        modules: by name. A parameter of several modules has the name of the first one.
    """
    found: dict[int, str] = {}
    for name, module in modules.items():
        for inner, parameter in module.named_parameters():
            found.setdefault(id(parameter), f"{name}.{inner}")
    return found


def pack_module(arrays: Arrays, name: str, module: torch.nn.Module) -> dict[str, Any]:
    """Returns a module's state in a form that a snapshot can hold.

    Besides parameters and buffers, also those that are not in its `state_dict`, the form has what
    `get_extra_state` returns, which parts are in training mode, and which parameters are trained.

    Args:
        arrays: to which the contents are added.
        name: of the module.
        module: the module.

    Raises:
        HvdFtError: it has parameters without a shape yet.
    """
    for inner, tensor in module.named_parameters():
        if is_lazy(tensor):
            raise HvdFtError(
                f"{name}.{inner} has no shape yet, so State cannot keep it: run the model once on "
                "a batch before"
            )
    persistent = _persistent(module)
    return {
        "parameters": {
            inner: arrays.add(f"{name}.{inner}", tensor)
            for inner, tensor in module.named_parameters()
        },
        "buffers": {
            # A name of its own for what a state_dict lacks: exports have it as it is.
            inner: arrays.add(f"{'' if inner in persistent else 'buffer.'}{name}.{inner}", tensor)
            for inner, tensor in module.named_buffers()
        },
        "extra": {key: pack(arrays, f"{name}.{key}", value) for key, value in _extra(module)},
        "training": [part.training for part in module.modules()],
        "trained": [parameter.requires_grad for parameter in module.parameters()],
    }


def restore_module(
    name: str, module: torch.nn.Module, packed: dict[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Sets a module to the state that `pack_module` has seen.

    Raises:
        HvdFtError: the script has made another module than before.
    """
    parts, parameters = dict(module.named_modules()), dict(module.named_parameters())
    for inner, form in packed["parameters"].items():
        contents = made(form, arrays)
        if not set_in_place(parameters.get(inner), contents):
            raise _other(f"{name}.{inner}", contents, parameters.get(inner))
    buffers = dict(module.named_buffers())
    for inner, form in packed["buffers"].items():
        contents = made(form, arrays)
        part, _, buffer = inner.rpartition(".")
        if part not in parts:
            raise _other(f"{name}.{inner}", contents, None)
        if not set_in_place(buffers.get(inner), contents):
            parts[part]._buffers[buffer] = contents  # of another shape by then
    if missing := sorted(parameters.keys() - packed["parameters"].keys()):
        raise HvdFtError(
            f"the snapshot has no {name}.{missing[0]}, but the restarted script has made it: it "
            "must make the same on every start"
        )
    for key, value in packed["extra"].items():
        part = key.removesuffix(_EXTRA).removesuffix(".")
        module.get_submodule(part).set_extra_state(unpack(value, arrays))
    for part, training in zip(module.modules(), packed["training"], strict=False):
        part.training = training
    for parameter, trained in zip(module.parameters(), packed["trained"], strict=True):
        parameter.requires_grad_(trained)


def _persistent(module: torch.nn.Module) -> set[str]:
    """Returns the names of the buffers that a module's `state_dict` has."""
    return {
        f"{name}.{inner}" if name else inner
        for name, part in module.named_modules()
        for inner in part._buffers.keys() - part._non_persistent_buffers_set
    }


def _extra(module: torch.nn.Module) -> list[tuple[str, Any]]:
    found = []
    for name, part in module.named_modules():
        if type(part).get_extra_state is not torch.nn.Module.get_extra_state:
            found.append((f"{name}.{_EXTRA}" if name else _EXTRA, part.get_extra_state()))
    return found


def _other(name: str, contents: torch.Tensor, own: torch.Tensor | None) -> HvdFtError:
    there = f"{list(contents.shape)} of {_kind(contents)}"
    here = "not made it" if own is None else f"made it {list(own.shape)} of {_kind(own)}"
    return HvdFtError(
        f"{name} is {there} in the snapshot, but the restarted script has {here}: it must make the "
        "same on every start"
    )


def _kind(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
