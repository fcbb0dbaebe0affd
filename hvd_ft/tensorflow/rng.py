"""The random number generators of a Python process, kept in a snapshot with everything else."""

import random
from typing import Any

import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import stateful_random_ops

from hvd_ft.tensorflow import keras_api
from hvd_ft.tensorflow.draws import draw_variables, draws, restore_draws
from hvd_ft.worker.snapshot_format import encode


def rng_state() -> dict[str, Any]:
    """Returns the state of Python's, NumPy's, TensorFlow's and Keras's global generators.

    This includes TensorFlow's operations without a generator (draws.py).

    A snapshot can hold these values. A generator that is not in use has no value.
    """
    name, keys, *rest = np.random.get_state(legacy=True)
    state: dict[str, Any] = {"numpy": [name, keys, *rest]}
    state |= {name: _pack(generator) for name, generator in _generators().items()}
    if (generator := _global_generator()) is not None:
        with context.eager_mode():  # a session's loop calls this from within its graph
            state["tensorflow"] = generator.state.numpy()
    if (drawn := draws()) is not None:
        state["operations"] = drawn
    return state


def restore_rng_state(state: dict[str, Any]) -> None:
    """Sets all or some states that `rng_state` returned, of the generators this process has."""
    if "numpy" in state:
        np.random.set_state(tuple(state["numpy"]))
    for name, generator in _generators().items():
        if name in state:
            version, keys, gauss = state[name]
            generator.setstate((version, tuple(keys.tolist()), gauss))
    if "tensorflow" in state and (generator := _global_generator()) is not None:
        with context.eager_mode():
            generator.reset(state["tensorflow"])
    if "operations" in state:
        restore_draws(state["operations"])


def rng_variables() -> list[Any]:
    """Returns the variables that `rng_state` reads."""
    generator = _global_generator()
    return [*([] if generator is None else [generator.state]), *draw_variables()]


def drawn_by(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Returns the generators of Python code that have drawn between two states."""

    def packed(state: dict[str, Any], name: str) -> bytes:
        return b"".join(encode({}, {name: state[name]}))

    return {name for name in ("python", "numpy") if packed(before, name) != packed(after, name)}


def _global_generator() -> Any:
    """Returns TensorFlow's, unless it was made in a graph: then it is a variable of that graph."""
    generator = stateful_random_ops.global_generator
    if generator is None or not isinstance(generator.state.handle, ops.EagerTensor):
        return None
    return generator


def _generators() -> dict[str, Any]:
    # The last two provide seeds for TensorFlow's eager ops (tf.random.set_seed) and for Keras
    # layers (keras.utils.set_random_seed). TensorFlow 2.15 has no public name for them, and without
    # them a shuffle() created after a loop that a restarted process skips would get another seed.
    generators = {
        "python": random,
        "eager": getattr(context.context(), "_rng", None),
        "keras": keras_api.seeds(),
    }
    return {name: value for name, value in generators.items() if value is not None}


def _pack(generator: Any) -> list[Any]:
    version, keys, gauss = generator.getstate()
    return [version, np.array(keys, np.uint32), gauss]
