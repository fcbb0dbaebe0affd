"""A call of Keras 2's `Model.fit`, of TensorFlow 2.15 or of tf_keras."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvd_ft.tensorflow import keras_api
from hvd_ft.tensorflow.data import DataIterator, after_passes, after_validations
from hvd_ft.tensorflow.keras_fit import Enter, FitCall, Progress, two_say_where_to_begin
from hvd_ft.tensorflow.variables import make_step_variables

_GeneratorDataAdapter = keras_api.source("engine.data_adapter").GeneratorDataAdapter


class Fit(FitCall):
    """A `fit` that is on the call stack; see FitCall."""

    def __init__(self, fit: dict[str, Any]) -> None:
        self._model = fit["self"]
        self._data = fit["data_handler"]
        self._given = fit["x"]
        self._by_several_workers = fit["workers"] > 1 or fit["use_multiprocessing"]
        self._validation: tuple[Any, int | None] = fit.get("val_x"), fit["validation_steps"]
        self.callbacks = fit["callbacks"].callbacks
        self.steps_per_epoch = fit["steps_per_epoch"]
        self._start: _Start | None = None

    @property
    def dataset(self) -> Any:
        return self._data._dataset

    @property
    def workers_read(self) -> str:
        if self._by_several_workers and isinstance(self._data._adapter, _GeneratorDataAdapter):
            return type(self._given).__name__
        return ""

    def begin_by(self, enter: Enter) -> None:
        if self._model._training_state is not None:
            raise two_say_where_to_begin()
        self._start = self._model._training_state = _Start(self._model, enter)

    def begin_epoch(self) -> None:
        if self._start is None or not self._start.asked:
            raise two_say_where_to_begin()

    def first_iterator(self) -> DataIterator:
        # Keras creates an iterator before the first epoch, and for some data another one for each
        # epoch.
        first = iter(self.dataset)
        return iter(self.dataset) if self._data._adapter.should_recreate_iterator() else first

    def catch_up(
        self, iterator: DataIterator, progress: Progress, done: bool, stopped: bool
    ) -> tuple[DataIterator, DataIterator]:
        end = self._data._adapter.on_epoch_end  # for data that reorders itself
        position = after_passes(self.dataset, iterator, progress.pass_steps, done, end)
        if done and not stopped:
            end()
        return iterator, position

    def catch_up_validations(self, batches: Sequence[int]) -> None:
        data, limit = self._validation
        if isinstance(data, tf.data.Dataset):
            after_validations(data, batches, limit)

    @property
    def validated(self) -> int:
        return int(self._model._test_counter)

    def follow_limit(self) -> None:
        pass  # Keras looks at it before each step

    def limit_epoch(self, steps: int | None) -> None:
        self._data._inferred_steps = steps

    def draw_no_more(self) -> None:
        self._data._dataset = ()  # the iterator that Keras is about to create is one too many

    @staticmethod
    def traced(train_function: Any) -> Any:
        return train_function

    def trace(self, train_function: Any, iterator: DataIterator) -> None:
        make_step_variables(self._model, iterator)
        if not hasattr(train_function, "get_concrete_function"):  # run_eagerly
            train_function = tf.function(train_function)
        train_function.get_concrete_function(iterator)


class _Start:
    """Keras asks it where to begin, as it asks its own BackupAndRestore."""

    def __init__(self, model: Any, enter: Enter) -> None:
        self._model = model
        self._enter = enter
        self.asked = False

    def maybe_load_initial_counters_from_ckpt(
        self, _steps_per_epoch: int | None, initial_epoch: int, **_: Any
    ) -> tuple[int, int]:
        """Determines where fit begins; all callbacks have begun."""
        self._model._training_state = None  # asked once; a later fit has its own
        self.asked = True
        return self._enter(initial_epoch)
