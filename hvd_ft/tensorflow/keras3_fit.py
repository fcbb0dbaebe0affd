"""A call of Keras 3's `Model.fit`, with TensorFlow as its backend.

Keras 3 knows an epoch to begin at, and no step. But it takes each step's number and iterator from
an epoch iterator, whose generator draws no data itself. So the steps of an epoch that are done are
skipped there, and earlier epochs are gone through with that generator: it then creates as many
iterators, and tells the data of as many epochs, as the earlier process has seen.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from hvd_ft.tensorflow.data import DataIterator, carries_state, draw, other_data
from hvd_ft.tensorflow.keras_fit import Enter, FitCall, Progress, two_say_where_to_begin

_Step = tuple[int, int, DataIterator]  # its first and last number, and what it draws from


class Fit(FitCall):
    """A `fit` that is on the call stack; see FitCall."""

    def __init__(self, fit: dict[str, Any]) -> None:
        self._model = fit["self"]
        self._epochs = _Epochs(fit["epoch_iterator"])
        self._given = fit["x"]
        self._arguments = fit
        self.callbacks = fit["callbacks"].callbacks
        self.steps_per_epoch = fit["steps_per_epoch"]
        self._start: _Start | None = None

    @property
    def dataset(self) -> Any:
        return self._epochs.dataset

    @property
    def workers_read(self) -> str:
        several = getattr(self._given, "workers", 1) > 1
        return type(self._given).__name__ if several else ""

    def leave_xla(self) -> bool:
        if not self._model.jit_compile:
            return False
        self._model.jit_compile = False
        self._model.make_train_function(force=True)
        return True

    def begin_by(self, enter: Enter) -> None:
        if any(isinstance(each, keras.callbacks.BackupAndRestore) for each in self.callbacks):
            raise two_say_where_to_begin()

        def begin() -> None:
            epoch, done = enter(self._arguments["initial_epoch"])
            self._model._initial_epoch = epoch
            if epoch != self._arguments["initial_epoch"] or done:
                self._epochs.enter(done)

        self._start = _Start(self._model, begin)
        self.callbacks.append(self._start)

    def begin_epoch(self) -> None:
        pass

    def first_iterator(self) -> DataIterator:
        return None

    def catch_up(
        self, iterator: DataIterator, progress: Progress, done: bool, stopped: bool
    ) -> tuple[DataIterator, DataIterator]:
        drawn = progress.pass_steps
        position = self._epochs.catch_up(
            progress.lengths,
            None if done else progress.epoch_step,
            drawn[-1] if drawn else 0,
            stopped,
        )
        return position, position

    def catch_up_validations(self, batches: Sequence[int]) -> None:
        given = self._arguments
        if not batches or given["validation_data"] is None:
            return
        # As fit makes it before its first validation.
        epochs = type(given["epoch_iterator"])(
            x=given["val_x"],
            y=given["val_y"],
            sample_weight=given["val_sample_weight"],
            batch_size=given["validation_batch_size"] or given["batch_size"],
            distribute_strategy=self._model.distribute_strategy,
            steps_per_execution=self._model.steps_per_execution,
            steps_per_epoch=given["validation_steps"],
            shuffle=False,
        )
        self._model._eval_epoch_iterator = epochs
        for count in batches:
            epochs.reset()
            passed = _Epochs(epochs)
            passed.pass_epoch(count, carries_state(passed.dataset))

    @property
    def validated(self) -> int:
        return 0 if self._start is None else self._start.tested

    def follow_limit(self) -> None:
        self._epochs.follow_limit()

    def limit_epoch(self, steps: int | None) -> None:
        self._epochs.limit(steps)

    def draw_no_more(self) -> None:
        pass  # no epoch is left, and only an epoch creates an iterator

    @staticmethod
    def traced(train_function: Any) -> Any:
        inside = inspect.getclosurevars(train_function).nonlocals
        return inside["multi_step_on_iterator"]

    def trace(self, train_function: Any, iterator: DataIterator) -> None:
        step = self.traced(train_function)
        batch = self.dataset.element_spec
        if hasattr(step, "get_concrete_function"):
            step.get_concrete_function(tf.data.IteratorSpec(batch))
        else:  # run_eagerly
            self._model._symbolic_build(data_batch=batch)


class _Start(keras.callbacks.Callback):
    """The last callback: when it begins, all others have; it counts batches of a validation."""

    def __init__(self, model: Any, begin: Callable[[], None]) -> None:
        super().__init__()
        self.set_model(model)
        self._begin = begin
        self.tested = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._begin()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model._initial_epoch = None  # a later fit has its own

    def on_train_end(self, logs: Any = None) -> None:
        self.model._initial_epoch = None

    def on_test_begin(self, logs: Any = None) -> None:
        self.tested = 0

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.tested = batch + 1


class _Epochs:
    """An epoch iterator of Keras.

    Args:
        epochs: of Keras; it has not begun.
    """

    def __init__(self, epochs: Any) -> None:
        self._epochs = epochs
        self._rest: Iterator[_Step] = iter(())
        self._begin_at: int | None = None  # a step, if `follow_limit` has been called

    @property
    def dataset(self) -> Any:
        """From which it creates its iterators."""
        return self._epochs._distributed_dataset

    def limit(self, steps: int | None) -> None:
        """Sets after how many steps the present epoch ends."""
        self._epochs._num_batches = steps

    def follow_limit(self) -> None:
        """Has all epochs look at their limit before each step; Keras looks where one begins."""
        self._begin_at = 0

        def steps() -> Iterator[_Step]:
            iterator = iter(self.dataset)
            each = self._epochs.steps_per_execution
            begin, self._begin_at = self._begin_at or 0, 0
            while self._epochs._num_batches is None or begin < self._epochs._num_batches:
                self._epochs._steps_seen = begin + each
                yield begin, begin + each - 1, iterator
                begin += each

        self._epochs._enumerate_iterator = steps

    def enter(self, done: int) -> None:
        """Has the next epoch begin after `done` steps, with what `catch_up` has prepared."""
        if self._begin_at is not None:
            self._begin_at = done
            return

        def steps() -> Iterator[_Step]:
            del self._epochs._enumerate_iterator  # the epochs after it begin as usual
            # Its iterator is made where the step is run, after the callbacks' hooks.
            yield done, done + self._epochs.steps_per_execution - 1, None
            yield from self._rest

        self._epochs._enumerate_iterator = steps

    def catch_up(
        self, lengths: Sequence[int], done: int | None, drawn: int, stopped: bool
    ) -> DataIterator:
        """Goes through what an earlier process has gone through.

        Args:
            lengths: steps of each epoch that has ended.
            done: steps of the present epoch; None if there is none.
            drawn: batches of the present pass over the data, which may be longer than an epoch.
            stopped: whether a callback has stopped the latest epoch.

        Returns:
            The present iterator, at the right batch; None if there is none.
        """
        carries = carries_state(self.dataset)
        for number, steps in enumerate(lengths, 1):
            self.pass_epoch(steps, carries, stopped and number == len(lengths))
        if done is None:
            return None
        if self._epochs.steps_per_epoch and not lengths and drawn > done:  # resized: forgotten
            self._epochs._current_iterator = iter(self.dataset)
            self._epochs._steps_seen = drawn - done
            carries = False
        before = self._epochs._current_iterator
        rest = self._steps()
        iterator = None
        for begin, _, found in rest:
            iterator = found
            if begin >= done:
                break
        if iterator is None:
            raise other_data(done)
        draw(iterator, done if carries or iterator is not before else drawn)
        self._rest = rest
        return iterator

    def pass_epoch(self, steps: int, carries: bool, stopped: bool = False) -> None:
        """Goes through an epoch that is over.

        Args:
            steps: that it had.
            carries: whether drawing from a pass influences the next.
            stopped: whether a callback may have stopped it.
        """
        rest, count = self._steps(), 0
        iterator: DataIterator = None
        each = self._epochs.steps_per_execution
        while count < steps and (step := next(rest, None)) is not None:
            iterator, count = step[2], step[0] + each
        known = self._epochs.steps_per_epoch or self._epochs._num_batches
        if carries:
            draw(iterator, min(steps, known or steps))
        if known is not None and count >= known:
            next(rest, None)
        elif not stopped:  # the data has ended where another step was to begin
            next(rest, None)
            if carries:
                iterator.get_next_as_optional()  # cache() has to see the end
            with warnings.catch_warnings(action="ignore"), self._epochs.catch_stop_iteration():
                raise StopIteration

    def _steps(self) -> Iterator[_Step]:
        found: Iterator[_Step] = type(self._epochs)._enumerate_iterator(self._epochs)
        return found
