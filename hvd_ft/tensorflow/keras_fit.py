"""Finds the running call of `Model.fit`, with data that Keras does not give to a callback.

Early stopping has to stop all ranks at the same step, and a dataset has to be repositioned, yet
Keras gives a callback neither the other callbacks nor the data. So this module reads the frame of
`fit`. No other module reads it or knows the names of Keras 2.15 in it.
"""

import sys
from collections.abc import Callable
from typing import Any

from keras.src.engine.data_adapter import GeneratorDataAdapter

from hvd_ft.errors import HvdFtError


class FitCall:
    """A `fit` that is on the call stack.

    Attributes:
        callbacks: all of them, including Keras's own.
        validation: its data and, if limited, its steps; (None, None) without any.
        steps_per_epoch: as given; None if it was left out.

    Raises:
        HvdFtError: there is no such call.
    """

    def __init__(self) -> None:
        fit = _locals_of_fit()
        if fit is None:
            raise HvdFtError(
                "FaultTolerance does not find the fit that it is used in: use the Keras of "
                "TensorFlow 2.15"
            )
        self._data = fit["data_handler"]
        self._given = fit["x"]
        self._by_several_workers = fit["workers"] > 1 or fit["use_multiprocessing"]
        self.callbacks: list[Any] = fit["callbacks"].callbacks
        self.validation: tuple[Any, int | None] = fit.get("val_x"), fit["validation_steps"]
        self.steps_per_epoch: int | None = fit["steps_per_epoch"]

    @classmethod
    def find(cls) -> "FitCall | None":
        """Returns the fit on the call stack; None if something else calls the callbacks."""
        return None if _locals_of_fit() is None else cls()

    @property
    def dataset(self) -> Any:
        """The dataset from which Keras creates its iterators."""
        return self._data._dataset

    @property
    def on_epoch_end(self) -> Callable[[], Any]:
        """The function that Keras calls after each epoch, for data that reorders itself."""
        end: Callable[[], Any] = self._data._adapter.on_epoch_end
        return end

    @property
    def has_an_iterator_each_epoch(self) -> bool:
        """Whether Keras creates an iterator for each epoch; otherwise one serves all."""
        return bool(self._data._adapter.should_recreate_iterator())

    @property
    def workers_read(self) -> str:
        """The type of data that several workers read in an arbitrary order; "" if there is none."""
        if self._by_several_workers and isinstance(self._data._adapter, GeneratorDataAdapter):
            return type(self._given).__name__
        return ""

    def limit_epoch(self, steps: int | None) -> None:
        """Sets after how many steps Keras ends the present epoch; None: where its data ends."""
        self._data._inferred_steps = steps

    def draw_no_more(self) -> None:
        """Prevents Keras from creating the iterator that it is about to create."""
        self._data._dataset = ()


def _locals_of_fit() -> dict[str, Any] | None:
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code.co_name == "fit" and "data_handler" in frame.f_locals:
            return frame.f_locals
    return None
