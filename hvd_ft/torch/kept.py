"""The values of a `State`, each kept as its kind needs it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hvd_ft.torch.modules import pack_module, parameter_names, restore_module
from hvd_ft.torch.optimizers import inner, pack_optimizer, parameters_of, restore_optimizer
from hvd_ft.torch.packing import pack, unpack
from hvd_ft.torch.rng import generator_state, is_generator, set_generator_state
from hvd_ft.torch.tensors import Arrays, made, set_in_place
from hvd_ft.worker.divergence_rule import Kind
from hvd_ft.worker.loop_state import has_state

GRADIENT = "gradient"  # prefix of the names of gradients


class KeptValues:
    """The values of a State at one moment.

    Args:
        values: by name: modules, optimizers, generators, objects with `state_dict` and
            `load_state_dict`, and what `pack` takes.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._modules = {
            name: value for name, value in values.items() if isinstance(value, torch.nn.Module)
        }
        self._names = parameter_names(self._modules)

    def pack(self, arrays: Arrays) -> dict[str, Any]:
        """Returns all values but generators in a form that a snapshot can hold.

        Args:
            arrays: to which the contents of tensors are added.

        Raises:
            HvdFtError: a value cannot be kept; the message names it.
        """
        return {
            name: self._packed(arrays, name, value)
            for name, value in self._values.items()
            if not is_generator(value)
        }

    def restore(
        self, packed: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Sets the values to what `pack` has seen.

        Returns:
            Those values, by name, that are to be replaced because they cannot be set.

        Raises:
            HvdFtError: the script has made other values than before.
        """
        new: dict[str, Any] = {}
        for name in packed:
            value: Any = self._values.get(name)
            if isinstance(value, torch.nn.Module):
                restore_module(name, value, packed[name], arrays)
            elif isinstance(value, torch.optim.Optimizer):
                restore_optimizer(name, value, packed[name], arrays, self.parameters())
            elif has_state(value):
                value.load_state_dict(unpack(packed[name], arrays))
            else:
                found = unpack(packed[name], arrays)
                if not set_in_place(value, found):
                    new[name] = found
        return new

    def pack_gradients(self, arrays: Arrays) -> dict[str, Any]:
        """Returns the gradients that parameters have, by the parameters' names, likewise."""
        return {
            name: arrays.add(f"{GRADIENT}.{name}", parameter.grad)
            for name, parameter in self.all_parameters().items()
            if parameter.grad is not None
        }

    def restore_gradients(
        self, packed: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Sets the gradients that `pack_gradients` has seen; others are removed."""
        for name, parameter in self.all_parameters().items():
            gradient = made(packed[name], arrays) if name in packed else None
            if not set_in_place(parameter.grad, gradient):
                parameter.grad = gradient

    def generators(self) -> dict[str, Any]:
        """Returns the states of the generators among the values, by name."""
        return {
            name: generator_state(value)
            for name, value in self._values.items()
            if is_generator(value)
        }

    def restore_generators(self, states: Mapping[str, Any]) -> None:
        """Sets the states that `generators` returned."""
        for name, state in states.items():
            set_generator_state(self._values[name], state)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Returns the parameters of modules, by name."""
        return {
            self._names[id(parameter)]: parameter
            for module in self._modules.values()
            for parameter in module.parameters()
        }

    def all_parameters(self) -> dict[str, torch.Tensor]:
        """Returns the parameters of modules and optimizers, by name."""
        found = self.parameters()
        for name, value in self._values.items():
            if isinstance(value, torch.optim.Optimizer):
                found |= parameters_of(name, inner(value), self._names)
        return found

    def kinds(self, arrays: Arrays) -> dict[str, Kind]:
        """Returns the known kinds of arrays, by name (divergence_rule.py)."""
        trained = {name for name, each in self.all_parameters().items() if each.requires_grad}
        found: dict[str, Kind] = {}
        for key in arrays.tensors:
            name = key.partition(":")[2].partition("|")[0]
            if name.startswith(f"{GRADIENT}."):
                found[key] = Kind.OWN
            elif name in trained:
                found[key] = Kind.WEIGHT
        return found

    def _packed(self, arrays: Arrays, name: str, value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            return pack_module(arrays, name, value)
        if isinstance(value, torch.optim.Optimizer):
            return pack_optimizer(arrays, name, value, self._names)
        return pack(arrays, name, value.state_dict() if has_state(value) else value)
