"""Keras callbacks: Horovod's, `FaultTolerance` and `EpochTiming`."""

import os
from functools import cache
from typing import Any

from horovod.tensorflow.keras.callbacks import *  # noqa: F403

# The one that all scripts name, for those who check types.
from horovod.tensorflow.keras.callbacks import BroadcastGlobalVariablesCallback  # noqa: F401
from tensorflow import keras

from hvd_ft import native
from hvd_ft.system.say import say
from hvd_ft.tensorflow.epoch_timing import RankClock
from hvd_ft.tensorflow.fit_loop import FitLoop
from hvd_ft.tensorflow.keras_fit import required_fit, running_fit
from hvd_ft.tensorflow.sampled_fit import SampledFit
from hvd_ft.worker.snapshot_interval import DEFAULT_OVERHEAD, check_snapshot_settings
from hvd_ft.worker.training_loop import TrainingLoop


class FaultTolerance(keras.callbacks.Callback):
    """Lets `Model.fit` continue where it was when this process is restarted.

    Give it to every `fit`. It keeps a snapshot of the whole state of training: the variables of the
    model, the optimizer and the metrics, the position in the data, the state of the random
    generators, and numbers, texts and arrays among the attributes of the other callbacks. In a
    restarted process, the first step of fit restores the snapshot and continues with the right
    batch. If the data comes from an ElasticSampler, the sampler's epochs are those of fit; without
    an agent the callback does nothing else.

    Args:
        snapshot_steps: steps (batches) from one snapshot to the next, at least 1; None: chosen by
            `snapshot_overhead`.
        snapshot_overhead: share of the training time that snapshots may take.

    Raises:
        HvdFtError: an argument is out of range.
    """

    _supports_tf_logs = True  # it does not use logs, so Keras need not convert them

    def __init__(
        self, snapshot_steps: int | None = None, snapshot_overhead: float = DEFAULT_OVERHEAD
    ) -> None:
        super().__init__()
        check_snapshot_settings(snapshot_steps, snapshot_overhead)
        self._snapshots = (snapshot_steps, snapshot_overhead)
        self._fit: FitLoop | None = None
        self._data: SampledFit | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        worker = native.worker()
        call = running_fit() if worker is None else required_fit()
        if call is not None and call.leave_xla() and (worker is None or worker.rank == 0):
            _say_it_is_not_compiled()
        self._data = SampledFit.of(call, self.params) if call is not None else None
        if worker is None or call is None:
            return
        loop = TrainingLoop(worker, *self._snapshots)
        self._fit = FitLoop(self.model, self.params, loop, call, self._data)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._fit is not None:
            self._fit.begin_epoch(epoch)
        elif self._data is not None:
            self._data.begin_epoch(0)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._fit is not None:
            self._fit.begin_step(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._fit is not None:
            self._fit.end_step(batch)
        if self._data is not None:
            self._data.end_step(batch + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._fit is not None:
            self._fit.end_epoch()
        if self._data is not None:
            self._data.end_epoch()

    def on_test_end(self, logs: Any = None) -> None:
        if self._fit is not None:
            self._fit.end_validation()

    def on_train_end(self, logs: Any = None) -> None:
        if self._fit is not None:
            self._fit.end()
        self._fit = self._data = None


@cache
def _say_it_is_not_compiled() -> None:
    say(
        "the training step runs without XLA (jit_compile), which cannot compile Horovod's "
        "operations: give compile jit_compile=False, and this line goes"
    )


class EpochTiming(RankClock, keras.callbacks.Callback):
    """Prints on rank 0 how long each epoch takes, measured at the steps of this fit.

    It measures at the first step at or past an epoch's end, and prints the exact position. An epoch
    here is a number of samples, whatever `steps_per_epoch` is.

    Args:
        samples: in an epoch, of all ranks together; at least 1.
        batch_size: samples in a step of one rank; at least 1.
        csv: file for the measurements, one per line; if omitted, no file is written.

    Raises:
        HvdFtError: an argument is out of range, or the file cannot be written.
        ValueError: Horovod is not initialised.
    """

    _supports_tf_logs = True

    def __init__(
        self, samples: int, batch_size: int, csv: str | os.PathLike[str] | None = None
    ) -> None:
        keras.callbacks.Callback.__init__(self)
        RankClock.__init__(self, samples, batch_size, csv)

    def on_train_begin(self, logs: Any = None) -> None:
        self._before = self._in_epoch = 0  # steps done
        self.reset()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begin_lap(self._before + batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._in_epoch = batch + 1
        if self.passes_boundary(step := self._before + self._in_epoch):
            self.end_lap(step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._before += self._in_epoch
        self._in_epoch = 0
