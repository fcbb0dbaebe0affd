"""The states and the decorator of `hvd.elastic` under an agent.

A script that was written for Horovod Elastic runs unchanged. A rank that dies comes back by itself,
in the middle of the decorated function; nobody else notices. So the function is called again only
if the number of ranks changes while it runs.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import horovod.tensorflow as hvd
import tensorflow as tf
from horovod.common.exceptions import HostsUpdatedInterrupt

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.tensorflow.state import State
from hvd_ft.worker.elastic_position import ElasticPosition
from hvd_ft.worker.training_loop import TrainingLoop

Result = TypeVar("Result")


def run(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorates the training function, as `horovod.tensorflow.elastic.run` does.

    Args:
        function: its first argument is a state, which is synchronised before.
    """

    @functools.wraps(function)
    def wrapper(state: Any, *arguments: Any, **more: Any) -> Result:
        state.sync()
        while True:
            try:
                return function(state, *arguments, **more)
            except HostsUpdatedInterrupt:
                state.on_reset()  # all ranks agree, so there is nothing to synchronise

    return wrapper


class ElasticState(State):
    """What the states of `hvd.elastic` have in common.

    `epoch` and `batch` say where the training is. A restarted process begins its loop with the
    batch after the last commit, whether the script assigns them before or after a batch.

    Args:
        arguments: as for `State`.
        more: as for `State`.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._position: ElasticPosition | None = None  # from `sync` on
        self._goes_on = False  # whether the loop began with a snapshot
        self._size: int | None = None  # number of ranks that the function was called with
        super().__init__(*arguments, **more, _counts_batches=False)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("epoch", "batch") and self._position is not None:
            assign = self._position.assign_epoch if name == "epoch" else self._position.assign_batch
            assign(value, self._op)

    @property
    def _op(self) -> int:
        worker = native.worker()
        return 0 if worker is None else worker.cursor()

    @property
    def _is_loop(self) -> bool:
        """Whether this state has the snapshots; a fit in the training function has its own."""
        return self._loop is not None and self._loop.is_open

    def sync(self) -> None:
        """As `State.sync`."""
        self._position, self._goes_on = None, False
        super().sync()
        self._begin(self._goes_on)

    def _restore(self, loop: TrainingLoop) -> None:
        super()._restore(loop)
        self._goes_on = True

    def _begin(self, goes_on: bool) -> None:
        self._size = hvd.size()
        begin = self.epoch, self.batch
        committed = begin if goes_on else None
        self._position = ElasticPosition(*begin, self._op, self._counts_batches, committed)

    def commit(self) -> None:
        """Saves the state, and looks whether the number of ranks has changed.

        Raises:
            HostsUpdatedInterrupt: it has; `run` calls the training function again.
            HvdFtError: as `save`.
        """
        self.save()
        self.check_host_updates()

    def save(self) -> None:
        """Marks the end of a step, as `State.commit`; takes a snapshot if one is due.

        Raises:
            HvdFtError: a value cannot be kept, or `epoch` and `batch` do not say how far the
                training is.
        """
        if not self._is_loop:
            return
        assert self._position is not None
        if self._position.commit(self._op):
            self._counts_batches = self._position.counts_batches
            self._end_step(keep=self._position.is_sure)

    def restore(self) -> None:
        """Is not there.

        Raises:
            HvdFtError: always.
        """
        raise HvdFtError(
            "state.restore() is not there: no rank goes back to a commit, as those that live go on "
            "and a restarted one catches up; leave it out"
        )

    def check_host_updates(self) -> None:
        """Looks whether the number of ranks has changed.

        Raises:
            HostsUpdatedInterrupt: it has, since the training function was called.
        """
        if self._size is not None and self._size != hvd.size():
            raise HostsUpdatedInterrupt(skip_sync=True)

    def on_reset(self) -> None:
        """Prepares the next call of the training function; `run` calls it.

        It goes on behind what is done. The functions of `register_reset_callbacks` are called.
        """
        if self._position is not None and self._is_loop:
            self.epoch, self.batch = self._position.next(self._op)
        self.call_reset_callbacks()
        self._begin(goes_on=True)

    def reset(self) -> None:
        """Does nothing; a subclass may do something before its reset callbacks are called."""

    def call_reset_callbacks(self) -> None:
        """Calls `reset`, and the functions of `register_reset_callbacks`."""
        self.reset()
        super().call_reset_callbacks()

    def _get_committed(self) -> dict[str, Any]:
        values = self._get()
        if self._position is not None and self._position.committed is not None:
            values["epoch"], values["batch"] = self._position.committed
        return values


class TensorFlowKerasState(ElasticState):
    """A state with a Keras model and its optimizer, as that of `horovod.tensorflow.elastic`.

    Args:
        model: Keras model, built.
        optimizer: its optimizer; by default the one it was compiled with.
        backend: not used.
        values: as for `State`.

    Raises:
        HvdFtError: the model is not built, or a value has a name that the state itself uses.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        optimizer: Any = None,
        backend: Any = None,
        **values: Any,
    ) -> None:
        super().__init__(model, optimizer, **values)


class TensorFlowState(ElasticState):
    """A state with variables, as that of `horovod.tensorflow.elastic`.

    Args:
        variables: all that the training changes.
        session: must be omitted.
        values: as for `State`.

    Raises:
        HvdFtError: there is a session, or there are no variables.
    """

    def __init__(self, variables: Any = None, session: Any = None, **values: Any) -> None:
        if session is not None:
            raise HvdFtError(
                "hvd.elastic.TensorFlowState cannot keep the variables of a session: give the "
                "session the hook hvd.estimator.FaultTolerance()"
            )
        if not variables:
            raise HvdFtError(
                "hvd.elastic.TensorFlowState is given no variables: give it all that the training "
                "changes, such as model.variables + optimizer.variables"
            )
        super().__init__(variables=variables, **values)


KerasState = TensorFlowKerasState
