"""The running call of `Model.fit`, with what Keras does not give to a callback.

Early stopping has to stop all ranks at the same step, a dataset has to be repositioned, and a
restarted process enters a fit in the middle; yet Keras gives a callback neither the other callbacks
nor the data, and says nowhere how to begin at a step. So `keras2_fit.py` and `keras3_fit.py` read
the frame of `fit`, each that of its Keras. No other module reads it or knows the names in it.
"""

import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hvd_ft.errors import HvdFtError
from hvd_ft.tensorflow.data import DataIterator
from hvd_ft.tensorflow.keras_api import KERAS_3

Enter = Callable[[int], tuple[int, int]]


class Progress(Protocol):
    """How far a fit was when its snapshot was taken."""

    @property
    def pass_steps(self) -> list[int]:
        """Steps done in each pass over the data."""

    lengths: list[int]  # steps of each epoch that has ended
    epoch_step: int  # steps done in the epoch that has not
    validations: list[int]  # batches of each validation that has ended


class FitCall(ABC):
    """A `fit` that is on the call stack.

    Attributes:
        callbacks: all of them, including Keras's own.
        steps_per_epoch: as given; None if it was left out.

    Args:
        fit: the local variables of its frame.
    """

    callbacks: list[Any]
    steps_per_epoch: int | None

    @abstractmethod
    def __init__(self, fit: dict[str, Any]) -> None: ...

    @property
    @abstractmethod
    def dataset(self) -> Any:
        """The dataset from which Keras creates its iterators."""

    @property
    @abstractmethod
    def workers_read(self) -> str:
        """The type of data that several workers read in an arbitrary order; "" if there is none."""

    def leave_xla(self) -> bool:
        """Has the training step run without XLA, which has no kernels of Horovod's operations.

        Returns:
            Whether Keras would have compiled it without being asked; Keras 2 does not.
        """
        return False

    @abstractmethod
    def begin_by(self, enter: Enter) -> None:
        """Has a function determine where fit begins.

        Args:
            enter: called with fit's first epoch when all callbacks have begun; returns the epoch
                to begin at, and how many steps of it are done.

        Raises:
            HvdFtError: something else already determines it.
        """

    @abstractmethod
    def begin_epoch(self) -> None:
        """An epoch begins.

        Raises:
            HvdFtError: something else has determined where fit begins.
        """

    @abstractmethod
    def first_iterator(self) -> DataIterator:
        """Creates the iterator that a fit which is over drew its first batch from."""

    @abstractmethod
    def catch_up(
        self, iterator: DataIterator, progress: Progress, done: bool, stopped: bool
    ) -> tuple[DataIterator, DataIterator]:
        """Catches up with the passes over the training data that an earlier process has made.

        Args:
            iterator: from which Keras draws its first batch.
            progress: of the earlier process.
            done: whether the fit is over.
            stopped: whether a callback has stopped it.

        Returns:
            The iterator of the present pass that Keras goes on with, and the one to draw from.

        Raises:
            HvdFtError: the data ends elsewhere.
        """

    @abstractmethod
    def catch_up_validations(self, batches: Sequence[int]) -> None:
        """Catches up with the validations of an earlier process.

        Args:
            batches: how many each validation has drawn.
        """

    @property
    @abstractmethod
    def validated(self) -> int:
        """Batches of the validation that has just ended."""

    @abstractmethod
    def follow_limit(self) -> None:
        """Lets `limit_epoch` change the length of an epoch that has begun."""

    @abstractmethod
    def limit_epoch(self, steps: int | None) -> None:
        """Sets after how many steps Keras ends the present epoch; None: where its data ends."""

    @abstractmethod
    def draw_no_more(self) -> None:
        """Prevents Keras from drawing data for a fit that is over."""

    @staticmethod
    @abstractmethod
    def traced(train_function: Any) -> Any:
        """Returns what TensorFlow traces of a train function: a tf.function, unless run eagerly."""

    @abstractmethod
    def trace(self, train_function: Any, iterator: DataIterator) -> None:
        """Creates all variables of a step, as its first call would, without running it."""


def running_fit() -> FitCall | None:
    """Returns the fit on the call stack; None if something else calls the callbacks."""
    frame = sys._getframe()
    name = "epoch_iterator" if KERAS_3 else "data_handler"
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code.co_name == "fit" and name in frame.f_locals:
            module = importlib.import_module(f"{__package__}.keras{3 if KERAS_3 else 2}_fit")
            found: FitCall = module.Fit(frame.f_locals)
            return found
    return None


def required_fit() -> FitCall:
    """Returns the fit on the call stack.

    Raises:
        HvdFtError: there is no such call.
    """
    fit = running_fit()
    if fit is None:
        raise HvdFtError(
            "FaultTolerance does not find the fit that it is used in: use Model.fit of Keras 2 or "
            "of Keras 3, in a version that hvd_ft works with"
        )
    return fit


def two_say_where_to_begin() -> HvdFtError:
    """The error if something else determines where a fit begins."""
    return HvdFtError(
        "FaultTolerance and another callback both want to say where fit begins: give fit one "
        "FaultTolerance and no BackupAndRestore"
    )
