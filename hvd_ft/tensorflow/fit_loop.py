"""One call of `Model.fit` as a training loop that a restarted process can enter in the middle.

Keras can be made to begin at an epoch and step (keras_fit.py). And it looks up
`model.train_function` at every step, and calls it with the iterator that the step draws from; so a
function put in its place does everything that belongs between two steps (snapshot, restore,
skipping data). Unlike a callback's hook, this function has the iterator, and all callbacks have
finished the step before.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow import keras

from hvd_ft.errors import HvdFtError
from hvd_ft.system.say import say
from hvd_ft.tensorflow import made_variables
from hvd_ft.tensorflow.callback_state import CallbackState
from hvd_ft.tensorflow.data import DataIterator
from hvd_ft.tensorflow.file_callbacks import FileCallbacks
from hvd_ft.tensorflow.held_variables import HeldVariables
from hvd_ft.tensorflow.keras_api import KERAS_3
from hvd_ft.tensorflow.keras_fit import FitCall
from hvd_ft.tensorflow.made_variables import Identity, changes_table, step_variables
from hvd_ft.tensorflow.other_variables import (
    KeptOthers,
    OtherVariables,
    identities,
    known_only,
)
from hvd_ft.tensorflow.resized import of_fit, of_returned_fit, of_sampled_fit
from hvd_ft.tensorflow.rng import drawn_by, restore_rng_state, rng_state
from hvd_ft.tensorflow.sampled_fit import SampledFit
from hvd_ft.tensorflow.variables import (
    assign,
    byte_count,
    fit_variables,
    inner,
    kinds,
    own_variables,
    read,
    restore,
)
from hvd_ft.worker.divergence_rule import Kind
from hvd_ft.worker.training_loop import Contents, TrainingLoop


@dataclass
class FitPosition:
    """How far a fit is. A snapshot has it, and a process that is restarted repeats it.

    Attributes:
        epoch: the present one, or the next.
        epoch_step: steps done in this epoch.
        epoch_begin: steps done before this epoch.
        lengths: steps of each epoch that has ended.
        passes: steps done when each pass over the data began.
        validations: batches of each validation that has ended.
    """

    epoch: int = 0
    epoch_step: int = 0
    epoch_begin: int = 0
    lengths: list[int] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    validations: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "FitPosition":
        """Returns that of a snapshot's values."""
        names = [each.name for each in fields(cls)]
        return cls(**{name: values[name] for name in names if name in values})

    @property
    def step(self) -> int:
        """Steps done in the fit."""
        return self.epoch_begin + self.epoch_step

    @property
    def pass_steps(self) -> list[int]:
        """Steps done in each pass over the data."""
        ends = [*self.passes[1:], self.step]
        return [end - begin for begin, end in zip(self.passes, ends, strict=True)]


class FitLoop:
    """A fit from its beginning to its end.

    Args:
        model: being fitted; its train function exists.
        params: Keras's parameters of this fit.
        loop: the training loop, not begun.
        fit: the call that it is.
        data: if an ElasticSampler deals it out, else None.

    Raises:
        HvdFtError: something else already determines where this fit begins.
    """

    def __init__(
        self,
        model: keras.Model,
        params: dict[str, Any],
        loop: TrainingLoop,
        fit: FitCall,
        data: SampledFit | None = None,
    ) -> None:
        self._model = model
        self._params = params
        self._loop = loop
        self._fit = fit
        self._data = data
        self._train_function: Callable[[DataIterator], Any] = _own_train_function(model)
        self._callbacks = CallbackState([])
        self._held = HeldVariables([])
        self._files = FileCallbacks([], loop.worker)
        self._others: OtherVariables | None = None
        self._variables: list[tf.Variable] = []  # found once an epoch: the search is slow
        self._common: list[tf.Variable] = []  # other ones that the traced step uses; likewise
        self._position = FitPosition()
        self._pass_given: DataIterator = None  # the iterator of the present pass, as Keras knows it
        self._pass: DataIterator = None  # and the iterator that is really drawn from
        self._resumes = False
        self._sized = False
        fit.begin_by(self._enter)

    @property
    def step(self) -> int:
        """Steps done in this fit."""
        return self._position.step

    def _enter(self, initial_epoch: int) -> tuple[int, int]:
        """Begins the loop and tells Keras where to begin; all callbacks have begun."""
        fit = self._fit
        # Some of Keras 2's optimizers have plain numbers; those of Keras 3 have variables.
        counting = [] if KERAS_3 else [inner(self._model.optimizer)]
        self._callbacks = CallbackState([*fit.callbacks, *counting])
        self._held = HeldVariables(fit.callbacks)
        self._files = FileCallbacks(fit.callbacks, self._loop.worker)
        if self._loop.tells and fit.workers_read:
            _say_what_is_not_repeated(fit.workers_read)
        self._model.train_function = self._run_step
        self._position.epoch = initial_epoch
        values = self._loop.begin()
        # A model that its first batch builds has no variables yet, and refuses to name them.
        self._others = OtherVariables(fit_variables(self._model) if self._model.built else [])
        if values is None:
            self._files.begin(self._loop.number)
            return initial_epoch, 0
        over = False
        if self._data is not None:
            over = self._data.go_on(values.get("sampler"), values["done"])
        values = self._resized(values, over)
        self._position = FitPosition.of(values)
        self._files.restore_events(values["files"], done=values["done"])
        if values["done"]:
            self._pass_by()
            return self._params["epochs"], 0
        self._check_epoch_length()
        self._resumes = True
        return self._position.epoch, self._position.epoch_step

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins, or is entered in the middle."""
        self._fit.begin_epoch()
        self._position.epoch = epoch
        self._variables = []
        if self._data is not None:
            self._data.begin_epoch(self._position.epoch_step)

    def begin_step(self, epoch_step: int) -> None:
        """`epoch_step` steps of this epoch are done."""
        self._position.epoch_step = epoch_step

    def end_step(self, epoch_step: int) -> None:
        """Counts a step; Keras counts `steps_per_execution` of them as one."""
        self._position.epoch_step = epoch_step + 1

    def end_epoch(self) -> None:
        """An epoch has ended, after however many steps."""
        self._position.lengths.append(self._position.epoch_step)
        self._position.epoch_begin = self.step
        self._position.epoch_step = 0

    def end_validation(self) -> None:
        """A validation has ended."""
        self._position.validations.append(self._fit.validated)

    def end(self) -> None:
        """Ends the loop, with a final snapshot unless this process has restored that one."""
        self._reach_boundary()
        if self._loop.can_finish():
            self._loop.write(self.step, partial(self._contents, done=True), last=True)
        self._loop.end()
        self._model.train_function = self._train_function

    def _run_step(self, iterator: DataIterator) -> Any:
        if iterator is not self._pass_given:
            self._pass_given = self._pass = iterator
            if self._data is not None:
                self._data.begin_pass(iterator)
            if not self._resumes:
                self._position.passes.append(self.step)
        if self._resumes:
            self._pass_given, self._pass = self._restore(iterator)
            self._resumes = False
        self._reach_boundary()
        self._loop.begin_roster(self.step, partial(self._contents, done=False))
        if self.step > 0 and not self._sized:
            self._sized = True  # the first step has made the last variables
            trained = byte_count(self._model.trainable_variables)
            self._find_variables()
            if self._loop.tells and changes_table(self._fit.traced(self._train_function)):
                say(
                    "the training step changes a lookup table, which no snapshot holds, so it will "
                    "differ after a restart: keep numbers in a tf.Variable"
                )
            self._loop.check_room(byte_count([*self._variables, *self._common]), trained)
        source = self._pass if self._data is None else self._data.iterator()
        if self._loop.wants_snapshot(self.step):
            if self._params["steps"] is None:
                source = self._with_next_batch_drawn()
            self._loop.write(self.step, partial(self._contents, done=False))
        return self._train_function(source)

    def _reach_boundary(self) -> None:
        self._loop.set_step(self.step)
        variables = partial(fit_variables, self._model)
        self._loop.flip(
            self.step,
            lambda: read(variables()),
            lambda name, array: assign(variables(), name, array),
        )

    def _with_next_batch_drawn(self) -> DataIterator:
        # An epoch of unknown length may end here. Keras could not continue from a snapshot taken at
        # its very end, because an epoch without any step has no logs.
        batch = self._pass.get_next_as_optional()
        if not batch.has_value():
            raise StopIteration
        return iter(tf.data.Dataset.from_tensors(batch).map(lambda batch: batch.get_value()))

    def _contents(self, done: bool) -> Contents:
        values = {
            **vars(self._position),
            "done": done,
            "stopped": bool(self._model.stop_training),
            "rng": rng_state(),
            "callbacks": self._callbacks.changes(),
            "files": self._files.state(),
            "sampler": None if self._data is None else self._data.state(),
        }
        # The first step has created all variables.
        if not self._variables:
            self._find_variables()
        assert self._others is not None
        common, others = self._others.state(self._variables, self._common)
        held = self._held.state(identities(common, others))
        values |= {"others": others, "held": held}
        self._loop.kinds = {**self._kinds, **dict.fromkeys(common, Kind.OWN)}  # as they may be
        return {**read(self._variables), **common}, values

    def _find_variables(self) -> None:
        self._variables = fit_variables(self._model)
        own = own_variables(self._model)
        self._kinds = kinds(self._variables, self._model.weights, own)
        known = {id(variable) for variable in self._variables}
        used = step_variables(self._fit.traced(self._train_function))
        self._common = [variable for variable in used if id(variable) not in known]

    def _pass_by(self) -> None:
        """Restores the state at the end of this fit, which is already over."""
        first = self._fit.first_iterator()
        if self._position.passes:
            self._restore(first)
        else:  # it had no epochs to do, and so neither data nor variables of a step
            self._restore_rest(*self._loop.snapshot(), drawn=set())
        self._fit.draw_no_more()

    def _restore(self, iterator: DataIterator) -> tuple[DataIterator, DataIterator]:
        """Restores the snapshot.

        Args:
            iterator: the first one from which Keras draws batches in this fit.

        Returns:
            The present pass's iterator as Keras knows it, and the one at the right batch.
        """
        # Tracing a step creates all variables (weights, slots, metrics) and runs nothing. Keras
        # would trace it next in any case.
        self._fit.trace(self._train_function, iterator)
        arrays, values = self._loop.snapshot()
        values = self._resized(values)
        known = fit_variables(self._model)
        assert self._others is not None
        before, others = rng_state(), self._others.contents(known)
        place = iterator, iterator  # for a sampler's data it is
        if self._data is None:
            done, stopped = values["done"], values["stopped"]
            place = self._fit.catch_up(iterator, self._position, done, stopped)
        drawn = drawn_by(before, rng_state())
        self._fit.catch_up_validations(self._position.validations)
        self._restore_rest(arrays, values, drawn, self._others.changed_since(others, known))
        return place

    def _restore_rest(
        self,
        arrays: Mapping[str, Any],
        values: Mapping[str, Any],
        drawn: Set[str],
        written: Set[Identity] = frozenset(),
    ) -> None:
        """Restores all but the data.

        Args:
            arrays: of the snapshot.
            values: of the snapshot.
            drawn: generators that the data has drawn from.
            written: other variables that it has written.
        """
        restore(fit_variables(self._model), known_only(arrays))
        assert self._others is not None
        others = KeptOthers(arrays, values.get("others", {}))
        self._others.restore(others, written | made_variables.made.of_data())
        self._callbacks.restore(values["callbacks"])
        self._held.restore(values.get("held", {}), others.contents)
        self._files.restore_rest(values["files"], done=values["done"])
        self._model.stop_training = values["stopped"]  # scripts read it after the fit
        # A generator that the data draws from is already right: it may be further than at the
        # snapshot, as data is drawn ahead.
        restore_rng_state({name: values["rng"][name] for name in values["rng"].keys() - drawn})
        self._loop.jump()

    def _resized(self, values: dict[str, Any], over: bool = False) -> dict[str, Any]:
        """Returns a snapshot's values, for the number of ranks of this job.

        Args:
            values: of the snapshot.
            over: whether the epoch of its sampler is over.
        """
        ranks = self._loop.resized
        if self._loop.returned:
            values = of_returned_fit(values)
            return values if self._data is None else of_sampled_fit(values, over)
        if ranks is None:
            return values
        if self._data is not None:
            return of_sampled_fit(values, over)
        return of_fit(values, ranks, self._params["steps"])

    def _check_epoch_length(self) -> None:
        steps, done = self._params["steps"], self._position.epoch_step
        if self._data is None and steps is not None and done >= steps:
            raise HvdFtError(
                f"the restarted script's epochs have {steps} steps, but {done} are done: it "
                "must give the same batches on every start"
            )


def _own_train_function(model: keras.Model) -> Callable[[DataIterator], Any]:
    # A fit that ended with an exception has left its function in place.
    function = model.train_function
    left = getattr(function, "__self__", None)
    return left._train_function if isinstance(left, FitLoop) else function


def _say_what_is_not_repeated(data: str) -> None:
    say(
        f"fit reads its data ({data}) by several workers, which draw random numbers in an "
        "order of their own, so any it draws will differ after a restart: give fit, or in Keras 3 "
        "the data, workers=1, use_multiprocessing=False"
    )
