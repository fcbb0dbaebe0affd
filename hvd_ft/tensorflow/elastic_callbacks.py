"""The Keras callbacks of `hvd.elastic` under an agent: fit goes on where it was, by itself."""

from typing import Any

from tensorflow import keras

from hvd_ft.tensorflow.callbacks import FaultTolerance
from hvd_ft.tensorflow.elastic_state import ElasticState


class CommitStateCallback(FaultTolerance):
    """Lets `fit` continue where it was, as `FaultTolerance`; give it no other one.

    If the number of ranks changes while it runs, fit ends at the next commit, and `elastic.run`
    calls the training function again.

    Args:
        state: that `elastic.run` is given.
        batches_per_commit: batches from one look at the number of ranks to the next, at least 1.
    """

    def __init__(self, state: ElasticState, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches_remaining = self.batches_per_commit
        super().on_train_begin(logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch, logs)
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            self.state.check_host_updates()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        self.state.check_host_updates()

    def on_resized(self) -> None:
        """The fit goes on from a checkpoint that another number of ranks has left."""
        self.state.call_reset_callbacks()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Sets `state.batch` to the number of the latest batch of the epoch, also after a restart.

    Args:
        state: that `elastic.run` is given.
    """

    def __init__(self, state: ElasticState) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.state.batch = max(0, batch - 1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Sets `state.epoch` to the number of epochs that are over, those of earlier fits included.

    Args:
        state: that `elastic.run` is given.
    """

    def __init__(self, state: ElasticState) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        self.initial_epoch = self.state.epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self.initial_epoch + epoch  # also where a restarted process enters

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self.initial_epoch + epoch + 1
