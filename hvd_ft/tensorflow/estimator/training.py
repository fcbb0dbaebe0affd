"""Makes `Estimator.train` behave the same on all ranks.

With `max_steps` an Estimator reads its model directory and does not train if that many steps are
done. Only rank 0 has a model directory, and when a process comes back, the directory contains more
steps than when the training began. So all ranks use the global step that rank 0 found the first
time.
"""

from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from tensorflow_estimator.python.estimator import estimator as stock

from hvd_ft.tensorflow.estimator.fault_tolerance import FaultTolerance
from hvd_ft.tensorflow.estimator.first_steps import begun_with, first_steps
from hvd_ft.tensorflow.estimator.memory import in_memory, is_in_memory

_stock_train = stock.Estimator.train


def join_training() -> None:
    """Replaces every Estimator's `train`."""
    stock.Estimator.train = train


def train(  # noqa: PLR0917 (the arguments are the Estimator's)
    self: Any,
    input_fn: Any,
    hooks: Sequence[Any] | None = None,
    steps: int | None = None,
    max_steps: int | None = None,
    saving_listeners: Any = None,
) -> Any:
    """`Estimator.train`, unchanged unless `FaultTolerance` is among the hooks."""
    kept = any(isinstance(hook, FaultTolerance) for hook in hooks or ())
    if not kept or not hvd.is_initialized():
        return _stock_train(self, input_fn, hooks, steps, max_steps, saving_listeners)
    if hvd.rank() > 0:
        _keep_in_memory(self)
    if max_steps is not None and max_steps > 0 and steps is None:
        if _first_step(self.model_dir) >= max_steps:
            return self
        assert hooks is not None
        hooks = [*hooks, tf.compat.v1.train.StopAtStepHook(last_step=max_steps)]
        max_steps = None
    return _stock_train(self, input_fn, hooks, steps, max_steps, saving_listeners)


def _keep_in_memory(estimator: Any) -> None:
    """Replaces the model directory of a rank that must not write, as the directory is rank 0's."""
    if not is_in_memory(estimator.model_dir):
        estimator._config = in_memory(estimator._config)
        estimator._model_dir = estimator._config.model_dir


def _first_step(model_dir: str) -> int:
    """The global step at which rank 0 begins."""
    own = begun_with(int(stock._load_global_step_from_checkpoint_dir(model_dir)))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.constant([own], tf.int64)
        agreed = session.run(hvd.broadcast(step, 0, name="hvd_ft.Estimator.first_step"))
    first_steps.append(int(agreed[0]))
    return first_steps[-1]
