"""`EpochTiming` for tf.estimator and monitored sessions."""

from typing import Any

import tensorflow as tf

from hvd_ft.tensorflow.epoch_timing import RankClock


class EpochTiming(RankClock, tf.compat.v1.train.SessionRunHook):
    """Prints on rank 0 how long each epoch takes, measured by the global step.

    It measures at the first `after_run` at or past an epoch's end, and prints the exact position.

    Args:
        samples: in an epoch, of all ranks together; at least 1.
        batch_size: samples in a step of one rank; at least 1.
        csv: file for the measurements, one per line; if omitted, no file is written.

    Raises:
        HvdFtError: an argument is out of range, or the file cannot be written.
        ValueError: Horovod is not initialised.
    """

    def begin(self) -> None:
        self._global_step = tf.compat.v1.train.get_or_create_global_step()
        self.reset()

    def before_run(self, run_context: Any) -> Any:
        if self._start is None:
            self.begin_lap(int(run_context.session.run(self._global_step)))
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        # The value fetched with the run may have been read before the step was counted.
        if self.passes_boundary(int(run_values.results) + 1):
            step = int(run_context.session.run(self._global_step))
            if self.passes_boundary(step):
                self.end_lap(step)
