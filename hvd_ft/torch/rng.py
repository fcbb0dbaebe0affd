"""The random number generators of a process, and generators that a script has made."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_KINDS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_MAX_ITEMS = 64  # a longer list is data
_MAX_DEPTH = 5


def rng_state() -> dict[str, Any]:
    """Returns the state of torch's, NumPy's and Python's global generators, for a snapshot."""
    state: dict[str, Any] = {
        "torch": torch.get_rng_state().numpy(),
        "numpy": list(np.random.get_state(legacy=True)),
        "python": _of_python(random.getstate()),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = [each.numpy() for each in torch.cuda.get_rng_state_all()]
    return state


def restore_rng_state(state: dict[str, Any]) -> None:
    """Sets the states that `rng_state` returned; what it lacks stays as it is."""
    if "torch" in state:
        torch.set_rng_state(torch.from_numpy(state["torch"]))
    if "numpy" in state:
        np.random.set_state(tuple(state["numpy"]))
    if "python" in state:
        random.setstate(_for_python(state["python"]))
    if "cuda" in state:
        torch.cuda.set_rng_state_all([torch.from_numpy(each) for each in state["cuda"]])


def is_generator(value: Any) -> bool:
    """Returns whether a value is a generator of torch, NumPy or Python."""
    return isinstance(value, _KINDS)


def generator_state(generator: Any) -> Any:
    """Returns a generator's state, for a snapshot."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().cpu().numpy()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return list(generator.get_state(legacy=True))
    return _of_python(generator.getstate())


def set_generator_state(generator: Any, state: Any) -> None:
    """Sets a state that `generator_state` returned."""
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.from_numpy(state))
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(tuple(state))
    else:
        generator.setstate(_for_python(state))


def generators_in(*roots: Any) -> list[Any]:
    """Returns the generators that objects keep, themselves or in what they keep, each once.

    Args:
        roots: a data loader's parts, for example. Long lists and tensors are not searched.
    """
    found: dict[int, Any] = {}
    seen: set[int] = set()
    for root in roots:
        found |= {id(each): each for each in _search(root, _MAX_DEPTH, seen)}
    return list(found.values())


def _search(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if is_generator(value):
        yield value
        return
    if depth == 0 or isinstance(value, type | torch.Tensor | np.ndarray | str | bytes):
        return
    if isinstance(value, dict):
        inner: Any = list(value.values())
    elif isinstance(value, list | tuple | set):
        inner = list(value)
    else:
        inner = list(getattr(value, "__dict__", {}).values())
    if len(inner) <= _MAX_ITEMS:
        for item in inner:
            yield from _search(item, depth - 1, seen)


class Stream:
    """Global generators of its own for a part of the script: the drawing of data.

    Args:
        seed: of all three generators; any int64.
    """

    def __init__(self, seed: int) -> None:
        self._torch = torch.Generator().manual_seed(seed).get_state()
        self._numpy = np.random.MT19937(seed % (1 << 64))
        self._python = random.Random(seed).getstate()

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Puts the stream in the place of the global generators.

        It does so for each batch. NumPy's generator is exchanged, not its state, which takes 0.5 ms
        to read; a second half of a pair of normal numbers that NumPy keeps is forgotten.
        """
        before = torch.get_rng_state(), np.random.get_bit_generator(), random.getstate()
        torch.set_rng_state(self._torch)
        np.random.set_bit_generator(self._numpy)
        random.setstate(self._python)
        try:
            yield
        finally:
            self._torch, self._python = torch.get_rng_state(), random.getstate()
            torch.set_rng_state(before[0])
            np.random.set_bit_generator(before[1])
            random.setstate(before[2])

    def state(self) -> dict[str, Any]:
        """Returns its state, for a snapshot."""
        return {
            "torch": self._torch.numpy().copy(),
            "numpy": self._numpy.state,
            "python": _of_python(self._python),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Sets a state that `state` returned."""
        self._torch = torch.from_numpy(state["torch"])
        self._numpy.state = state["numpy"]
        self._python = _for_python(state["python"])


def draw_seed() -> int:
    """Returns a number from torch's global generator, as a DataLoader draws its seeds."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_().item())


def _of_python(state: tuple[Any, ...]) -> list[Any]:
    version, keys, gauss = state
    return [version, np.array(keys, np.uint32), gauss]


def _for_python(state: list[Any]) -> tuple[Any, ...]:
    version, keys, gauss = state
    return (version, tuple(keys.tolist()), gauss)
