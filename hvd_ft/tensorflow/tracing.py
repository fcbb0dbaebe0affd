"""Makes TensorFlow trace Horovod's code without converting it.

AutoGraph converts all Python functions that a traced step calls, except those of the packages on
its own list, because an `if` in them might depend on a tensor. Horovod's never does: it is written
for graphs, with `tf.cond`. Without the conversion, which is the larger part of tracing a step, the
graph is the same, and a worker reaches its first step sooner, also after a failure.

TensorFlow 2.15 and Horovod 0.28.1 have no public names for this.
"""

import functools

import horovod.tensorflow
import horovod.tensorflow.functions
import tensorflow as tf
from tensorflow.python.autograph.core import config

_OURS = (config.DoNotConvert("horovod"), config.DoNotConvert("hvd_ft"))


def leave_horovod_unconverted() -> None:
    """Puts Horovod and hvd_ft on AutoGraph's list."""
    if config.CONVERSION_RULES[: len(_OURS)] == _OURS:
        return
    config.CONVERSION_RULES = (*_OURS, *config.CONVERSION_RULES)
    # A function that is itself made a tf.function is converted whatever the list says.
    for module in (horovod.tensorflow, horovod.tensorflow.functions):
        module._make_subgraph = functools.partial(tf.function, autograph=False)
