"""Random operations that count their draws in a variable, so that a restart can restore it.

Inside a tf.function `tf.random.uniform`, `tf.nn.dropout`, Keras layers and similar functions use
operations that count their draws in the runtime, where the count cannot be read. Under an agent
`keep_draws` replaces them by TensorFlow's stateless operations: the seeds stay the same, and one
counter of this process, a variable, counts the draws. It is part of the state of random generators
(rng.py). In graphs of sessions (tf.estimator) and in functions of tf.data nothing changes: their
draws are repeated after a restart.

TensorFlow 2.15 has no public names for the operations below.
"""

import functools
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import structured_function
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_random_ops, stateless_random_ops
from tensorflow.python.saved_model import save as saved_model
from tensorflow.python.saved_model import save_context

_random = tf.random
_in_data = threading.local()


class _Counter:
    """A key for operations without a seed, and the number of draws."""

    def __init__(self) -> None:
        self.initial = np.array([secrets.randbits(63), 0], np.int64)
        # Created at the first draw: until then a script may choose devices and threads.
        self.variable: tf.Variable | None = None

    def next(self) -> tf.Tensor:
        """Counts a draw, in the current graph or eagerly; returns key and number."""
        if self.variable is None:
            with tf.init_scope(), tf.device("CPU:0"):
                self.variable = tf.Variable(self.initial, trainable=False)
        return tf.convert_to_tensor(self.variable.assign_add([0, 1]))


_counter: _Counter | None = None


def keep_draws() -> None:
    """Makes random operations that are created from now on count in the variable."""
    global _counter
    if _counter is not None:
        return
    _counter = _Counter()
    for name, stateless in _STATELESS.items():
        setattr(gen_random_ops, name, _counting(getattr(gen_random_ops, name), stateless))
    _mark_data_functions()
    _let_functions_be_saved(_counter)


def draws() -> np.ndarray | None:
    """Returns key and count as an array of two int64; None without `keep_draws`."""
    if _counter is None or _counter.variable is None:
        return None if _counter is None else _counter.initial
    with context.eager_mode():  # a session's loop calls this from within its graph
        value: np.ndarray = _counter.variable.numpy()
        return value


def draw_variables() -> list[tf.Variable]:
    """Returns the variable that counts, if there is one."""
    return [] if _counter is None or _counter.variable is None else [_counter.variable]


def restore_draws(value: np.ndarray) -> None:
    """Sets the key and count that `draws` returned."""
    if _counter is not None:
        _counter.initial = np.array(value, np.int64)
        if _counter.variable is not None:
            with context.eager_mode():
                _counter.variable.assign(_counter.initial)


def _uniform_int(seed: Any, shape: Any, minval: Any, maxval: Any) -> Any:
    return _random.stateless_uniform(shape, seed, minval, maxval, tf.as_dtype(minval.dtype))


def _gamma(seed: Any, shape: Any, alpha: Any) -> Any:
    whole = tf.concat([shape, tf.cast(tf.shape(alpha), tf.as_dtype(shape.dtype))], 0)
    return _random.stateless_gamma(whole, seed, alpha, dtype=alpha.dtype)


def _poisson(seed: Any, shape: Any, rate: Any, dtype: Any = tf.int64) -> Any:
    whole = tf.concat([shape, tf.cast(tf.shape(rate), tf.as_dtype(shape.dtype))], 0)
    return _random.stateless_poisson(whole, seed, rate, dtype=dtype)


def _truncated(seed: Any, shape: Any, *bounds: Any) -> Any:
    return _random.stateless_parameterized_truncated_normal(shape, seed, *bounds)


# By the names of TensorFlow's generated functions: the stateless version of each draw.
_STATELESS: dict[str, Callable[..., Any]] = {
    "random_uniform": lambda seed, shape, dtype: _random.stateless_uniform(
        shape, seed, dtype=dtype
    ),
    "random_standard_normal": lambda seed, shape, dtype: _random.stateless_normal(
        shape, seed, dtype=dtype
    ),
    "truncated_normal": lambda seed, shape, dtype: _random.stateless_truncated_normal(
        shape, seed, dtype=dtype
    ),
    "random_uniform_int": _uniform_int,
    "random_shuffle": lambda seed, value: stateless_random_ops.stateless_shuffle(value, seed),
    "random_gamma": _gamma,
    "random_poisson_v2": _poisson,
    "multinomial": lambda seed, logits, num_samples, output_dtype=tf.int64: (
        _random.stateless_categorical(logits, num_samples, seed, output_dtype)
    ),
    "parameterized_truncated_normal": _truncated,
}


def _counting(stateful: Callable[..., Any], stateless: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the replacement of one of TensorFlow's functions."""

    @functools.wraps(stateful)
    def draw(
        *arguments: Any,
        seed: int | None = 0,
        seed2: int | None = 0,
        name: str | None = None,
        **more: Any,
    ) -> Any:
        if (
            getattr(_in_data, "depth", 0)
            or save_context.in_save_context()
            or not ops.executing_eagerly_outside_functions()
        ):
            return stateful(*arguments, seed=seed, seed2=seed2, name=name, **more)
        return stateless(_next_seed(seed, seed2), *arguments, **more)

    return draw


def _next_seed(seed: int | None, seed2: int | None) -> tf.Tensor:
    assert _counter is not None
    drawn = _counter.next()
    if not seed and not seed2:
        return drawn  # TensorFlow would take a seed from the system
    own = ((seed or 0) * 0x9E3779B97F4A7C15 + (seed2 or 0)) % (1 << 64) - (1 << 63)
    return tf.stack([tf.constant(own, tf.int64), drawn[1]])


def _mark_data_functions() -> None:
    begin = structured_function.StructuredFunctionWrapper.__init__

    @functools.wraps(begin)
    def marked(*arguments: Any, **more: Any) -> None:
        _in_data.depth = getattr(_in_data, "depth", 0) + 1
        try:
            begin(*arguments, **more)
        finally:
            _in_data.depth -= 1

    structured_function.StructuredFunctionWrapper.__init__ = marked


def _let_functions_be_saved(counter: _Counter) -> None:
    save = saved_model.save_and_return_nodes

    @functools.wraps(save)
    def with_counter(obj: Any, *arguments: Any, **more: Any) -> Any:
        if counter.variable is None:
            return save(obj, *arguments, **more)
        with _owned(obj, counter.variable):
            return save(obj, *arguments, **more)

    saved_model.save_and_return_nodes = with_counter


@contextmanager
def _owned(obj: Any, variable: tf.Variable) -> Iterator[None]:
    """Makes a variable belong to an object while the object is saved.

    A SavedModel has to own all variables of its functions. The object must not keep the variable
    afterwards: otherwise the model in a process that has not saved yet would have other variables
    than in the previous process.
    """
    obj._maybe_initialize_trackable()
    name = "hvd_ft_draws"
    while obj._lookup_dependency(name) is not None:  # of the job that has written it, if loaded
        name += "_"
    obj._track_trackable(variable, name)
    try:
        yield
    finally:
        del obj._unconditional_dependency_names[name]
        children = obj._unconditional_checkpoint_dependencies
        children[:] = [child for child in children if child.name != name]
