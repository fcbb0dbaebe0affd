"""Has TensorFlow trace Horovod's code as it is.

AutoGraph rewrites the Python of all that a traced step calls, but for the packages on a list of
its own, because an `if` there might depend on a tensor. Horovod's never does: it is written for
graphs, with `tf.cond`. Without the rewriting, which is the larger part of tracing a step, the graph
is the same, and a worker is earlier at its first step, or back after a failure.

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
    # What is made a tf.function itself is rewritten whatever the list says.
    for module in (horovod.tensorflow, horovod.tensorflow.functions):
        module._make_subgraph = functools.partial(tf.function, autograph=False)
