"""What a snapshot keeps of an optimizer: groups, states of parameters, and Horovod's counts.

`load_state_dict` of torch converts states to the types of their parameters, and refuses other
groups. Here both are restored as they were, whatever the optimizer.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.packing import pack, unpack
from hvd_ft.torch.tensors import Arrays, made, set_in_place

Named = dict[str, torch.Tensor]


def inner(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Returns the optimizer that a wrapper, such as Accelerate's, calls."""
    while isinstance(wrapped := vars(optimizer).get("optimizer"), torch.optim.Optimizer):
        optimizer = wrapped
    return optimizer


def parameters_of(name: str, optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> Named:
    """Returns an optimizer's parameters by name.

    Args:
        name: of the optimizer.
        optimizer: the optimizer.
        names: of parameters that modules have, by their ids. Others are named by their place.
    """
    return {
        names.get(id(parameter), f"{name}.group{at}.{number}"): parameter
        for at, group in enumerate(optimizer.param_groups)
        for number, parameter in enumerate(group["params"])
    }


def pack_optimizer(
    arrays: Arrays, name: str, optimizer: torch.optim.Optimizer, names: Mapping[int, str]
) -> dict[str, Any]:
    """Returns an optimizer's state in a form that a snapshot can hold.

    Args:
        arrays: to which the contents of tensors are added.
        name: of the optimizer.
        optimizer: any; of one with a `state_dict` of its own, that is kept.
        names: of parameters that modules have, by their ids; the optimizer keeps the contents of
            others.

    Raises:
        HvdFtError: its state has something that a snapshot cannot hold.
    """
    optimizer = inner(optimizer)
    if has_own_form(optimizer):
        return {"state_dict": pack(arrays, name, optimizer.state_dict())}
    named = parameters_of(name, optimizer, names)
    by_id = {id(parameter): key for key, parameter in named.items()}
    groups = [
        {
            "params": [by_id[id(parameter)] for parameter in group["params"]],
            "options": pack(
                arrays, f"{name}.groups.{at}", {k: v for k, v in group.items() if k != "params"}
            ),
        }
        for at, group in enumerate(optimizer.param_groups)
    ]
    states = []
    for key, state in optimizer.state.items():
        is_parameter = isinstance(key, torch.Tensor)
        text = by_id.get(id(key)) if is_parameter else None
        if is_parameter and text is None:
            continue  # of a parameter that is in no group any more
        packed_key = text if is_parameter else pack(arrays, name, key)
        label = text.partition(".")[2] if text else str(key)
        states.append([is_parameter, packed_key, pack(arrays, f"{name}.{label}", state)])
    own = {
        key: arrays.add(key, parameter)
        for key, parameter in named.items()
        if id(parameter) not in names
    }
    return {"groups": groups, "states": states, "own": own, "horovod": _counts(optimizer, by_id)}


def restore_optimizer(
    name: str,
    optimizer: torch.optim.Optimizer,
    packed: dict[str, Any],
    arrays: Mapping[str, np.ndarray],
    parameters: Mapping[str, torch.Tensor],
) -> None:
    """Sets an optimizer to the state that `pack_optimizer` has seen.

    Args:
        name: of the optimizer.
        optimizer: the optimizer.
        packed: returned by `pack_optimizer`.
        arrays: of the snapshot.
        parameters: those of modules, by name.

    Raises:
        HvdFtError: the script has made another optimizer than before.
    """
    optimizer = inner(optimizer)
    if "state_dict" in packed:
        optimizer.load_state_dict(unpack(packed["state_dict"], arrays))
        return
    names = {id(parameter): key for key, parameter in parameters.items()}
    _add_groups(name, optimizer, packed["groups"], parameters)
    for at, group in enumerate(packed["groups"]):
        _restore_group(f"{name}.group{at}", optimizer.param_groups[at], group, arrays, names)
    named = parameters_of(name, optimizer, names)
    for key, form in packed["own"].items():
        if not set_in_place(named[key], made(form, arrays)):
            raise _other(key)
    optimizer.state.clear()
    for is_parameter, key, state in packed["states"]:
        optimizer.state[named[key] if is_parameter else unpack(key, arrays)] = unpack(state, arrays)
    _restore_counts(optimizer, packed["horovod"], named)


def has_own_form(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether an optimizer defines itself what its `state_dict` has."""
    return type(optimizer).state_dict is not torch.optim.Optimizer.state_dict


def _add_groups(
    name: str,
    optimizer: torch.optim.Optimizer,
    groups: list[dict[str, Any]],
    parameters: Mapping[str, torch.Tensor],
) -> None:
    """Adds the groups that the snapshot has and the restarted script has not added yet."""
    for group in groups[len(optimizer.param_groups) :]:
        if lacks := [key for key in group["params"] if key not in parameters]:
            raise HvdFtError(
                f"{lacks[0]} is in a group that was added to {name} in training, but in no module "
                "of State: give State the module that has it"
            )
        optimizer.add_param_group({"params": [parameters[key] for key in group["params"]]})
    if len(groups) < len(optimizer.param_groups):
        raise _other(f"{name}.group{len(groups)}")


def _restore_group(
    name: str,
    own: dict[str, Any],
    group: dict[str, Any],
    arrays: Mapping[str, np.ndarray],
    names: Mapping[int, str],
) -> None:
    here = [names.get(id(each), f"{name}.{number}") for number, each in enumerate(own["params"])]
    if here != group["params"]:
        raise _other(name)
    for key, value in unpack(group["options"], arrays).items():
        if not set_in_place(own.get(key), value):
            own[key] = value


def _counts(optimizer: Any, by_id: Mapping[int, str]) -> dict[str, Any] | None:
    """Returns how far Horovod's optimizer has come in summing gradients before their exchange."""
    delays = getattr(optimizer, "_allreduce_delay", None)
    if delays is None:
        return None
    return {
        "passes": optimizer.backward_passes_per_step,
        "delays": {by_id[id(each)]: delay for each, delay in delays.items() if id(each) in by_id},
        "begun": [by_id[id(each)] for each in optimizer._handles if id(each) in by_id],
        "synchronized": bool(getattr(optimizer, "_synchronized", False)),
        "group_counts": list(getattr(optimizer, "_group_counts", {}).values()),
    }


def _restore_counts(optimizer: Any, packed: dict[str, Any] | None, named: Named) -> None:
    if packed is None or not hasattr(optimizer, "_allreduce_delay"):
        return
    optimizer.backward_passes_per_step = packed["passes"]
    for key, delay in packed["delays"].items():
        optimizer._allreduce_delay[named[key]] = delay
    optimizer._handles.clear()
    optimizer._handles.update({named[key]: (None, None) for key in packed["begun"]})
    if hasattr(optimizer, "_synchronized"):
        optimizer._synchronized = packed["synchronized"]
    counts = getattr(optimizer, "_group_counts", {})
    counts.update(zip(counts, packed["group_counts"], strict=True))


def _other(what: str) -> HvdFtError:
    return HvdFtError(
        f"{what} is not what it was in the snapshot: the restarted script must make the same "
        "optimizer on every start"
    )
