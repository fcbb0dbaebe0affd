"""Makes TensorFlow trace Horovod's code without converting it, and leave it out of saved models.

AutoGraph converts all Python functions that a traced step calls, except those of the packages on
its own list, because an `if` in them might depend on a tensor. Horovod's never does: it is written
for graphs, with `tf.cond`. Without the conversion, which is the larger part of tracing a step, the
graph is the same, and a worker reaches its first step sooner, also after a failure.

Horovod's optimizer has a tf.function among its attributes, and a SavedModel contains every traced
tf.function: it could not be loaded where Horovod's operations are missing. So this module makes
TensorFlow take it for a plain function, which is not saved.

TensorFlow 2.15 and Horovod 0.28.1 have no public names for this.
"""

import functools
from collections.abc import Callable
from typing import Any

import horovod.tensorflow
import horovod.tensorflow.functions
import tensorflow as tf
from tensorflow.python.autograph.core import config

from hvd_ft.tensorflow.keras_api import plain_all

_OURS = (config.DoNotConvert("horovod"), config.DoNotConvert("hvd_ft"))


def leave_horovod_unconverted() -> None:
    """Puts Horovod and hvd_ft on AutoGraph's list."""
    if config.CONVERSION_RULES[: len(_OURS)] == _OURS:
        return
    config.CONVERSION_RULES = (*_OURS, *config.CONVERSION_RULES)
    for module in (horovod.tensorflow, horovod.tensorflow.functions):
        module._make_subgraph = _traced_and_not_saved


def _traced_and_not_saved(function: Callable[..., Any]) -> Callable[..., Any]:
    # A function that is itself made a tf.function is converted whatever the list says.
    traced = tf.function(function, autograph=False)

    @functools.wraps(function)
    def call(*arguments: Any, **more: Any) -> Any:
        given = [plain_all(each) if isinstance(each, list) else each for each in arguments]
        return traced(*given, **more)

    return call
