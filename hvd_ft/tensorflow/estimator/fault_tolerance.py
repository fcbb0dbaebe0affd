"""`FaultTolerance`: a session's training loop that a restarted process can enter in the middle.

Everything happens between two runs, in `before_run`: the hook moves itself to the front of all
hooks, so the others have finished the last run and have not begun the next one.
"""

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.tensorflow.callback_state import CallbackState
from hvd_ft.tensorflow.estimator.first_steps import first_steps
from hvd_ft.tensorflow.estimator.graph import Draws, SessionVariables
from hvd_ft.tensorflow.estimator.outside import OutsideVariables
from hvd_ft.tensorflow.resized import of_session
from hvd_ft.tensorflow.rng import restore_rng_state, rng_state
from hvd_ft.worker.snapshot_interval import DEFAULT_OVERHEAD, check_snapshot_settings
from hvd_ft.worker.training_loop import Contents, TrainingLoop

_train = tf.compat.v1.train


class FaultTolerance(tf.compat.v1.train.SessionRunHook):
    """Lets `Estimator.train`, or a monitored session, continue where it was after a restart.

    Give it to every `train`, and to the `TrainSpec` of `train_and_evaluate`; one object may serve
    them all. It keeps a snapshot of the whole state of training: all variables, whatever their
    collections, the position in the data, the random operations of a step, Python's and NumPy's
    generators, and numbers, texts and arrays among the attributes of the other hooks. In a
    restarted process, the first run of the session restores the snapshot. Without an agent the hook
    only takes the model directory away from ranks other than 0.

    Args:
        snapshot_steps: steps (runs of the session) from one snapshot to the next, at least 1;
            None: chosen by `snapshot_overhead`.
        snapshot_overhead: share of the training time that snapshots may take.

    Raises:
        HvdFtError: an argument is out of range.
    """

    def __init__(
        self, snapshot_steps: int | None = None, snapshot_overhead: float = DEFAULT_OVERHEAD
    ) -> None:
        check_snapshot_settings(snapshot_steps, snapshot_overhead)
        self._snapshots = (snapshot_steps, snapshot_overhead)
        self._loop: TrainingLoop | None = None

    def begin(self) -> None:
        """Begins the loop: collectives from here on belong to it."""
        worker = native.worker()
        if worker is None:
            return
        session = _session_being_made()
        others = [hook for hook in session._hooks if hook is not self]
        session._hooks = [self, *others]  # the hooks that begin after this one still do
        self._others = list(_with_parts(others))
        self._hook_state = CallbackState(self._others)
        self._step = 0
        self._variables: SessionVariables | None = None  # set in the first run
        self._loop = TrainingLoop(worker, *self._snapshots)
        self._resumes = self._restored = self._loop.begin() is not None
        for hook in others:
            if isinstance(hook, hvd.BroadcastGlobalVariablesHook):
                vars(hook).pop("after_create_session", None)
                if self._resumes:  # the broadcast lies before the snapshot
                    hook.after_create_session = lambda session, coord: None

    def before_run(self, run_context: Any) -> None:
        """Between two steps: takes a snapshot if one is due, or restores one."""
        if self._loop is None:
            return
        session = run_context.session
        if self._variables is None:
            self._variables = SessionVariables(session.graph)
            self._outside = OutsideVariables(session, self._variables.all, self._loop.tells)
            self._draws = Draws(session.graph)
            self._loop.check_room(self._variables.byte_count, self._variables.trainable_byte_count)
            self._loop.kinds = self._variables.kinds
        if self._resumes:
            self._resumes = False
            self._restore(self._loop, session)
        self._reach_boundary(self._loop, session)
        self._loop.begin_roster(self._step, partial(self._contents, session, done=False))
        if self._loop.wants_snapshot(self._step):
            self._loop.write(self._step, partial(self._contents, session, done=False))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts a step."""
        if self._loop is not None:
            self._step += 1
            # The other hooks have added fetches, too; only the session's `run` has them all.
            fetched = sys._getframe(1).f_locals["actual_fetches"]
            self._draws.add(list(fetched.values()))

    def end(self, session: tf.compat.v1.Session) -> None:
        """Ends the loop, with a final snapshot unless this process has restored that one."""
        if self._loop is None:
            return
        self._reach_boundary(self._loop, session)
        if self._variables is not None and self._loop.can_finish():
            self._loop.write(self._step, partial(self._contents, session, done=True), last=True)
        self._loop.end()
        self._loop = None
        if self._restored:
            # Checkpoints and evaluations of this step were in another process's memory.
            for part in self._others:
                if isinstance(part, _train.SecondOrStepTimer):
                    part.reset()

    def _reach_boundary(self, loop: TrainingLoop, session: tf.compat.v1.Session) -> None:
        loop.set_step(self._step)
        if (variables := self._variables) is not None:
            read, assign = partial(variables.read, session), partial(variables.assign, session)
            loop.flip(self._step, read, assign)

    def _contents(self, session: tf.compat.v1.Session, done: bool) -> Contents:
        assert self._variables is not None
        values = {"done": done, "rng": rng_state(), "hooks": self._hook_state.changes()}
        values["draws"] = dict(self._draws.counts)
        values["outside"] = self._outside.changed(session)
        values["first_steps"] = list(first_steps)
        return self._variables.read(session), values

    def _restore(self, loop: TrainingLoop, session: tf.compat.v1.Session) -> None:
        assert self._variables is not None
        arrays, values = loop.snapshot()
        if loop.resized is not None:
            values = of_session(values, loop.resized)
        if not values["done"]:
            self._draws.drop(session, values["draws"])
        self._variables.restore(session, arrays)
        self._outside.restore(session, values.get("outside", {}))
        self._hook_state.restore(values["hooks"])
        restore_rng_state(values["rng"])
        self._step = values["step"]
        loop.jump()
        if values["done"]:
            raise StopIteration  # as at the end of the data: the session goes to its end


def _session_being_made() -> Any:
    """Returns the monitored session that calls `begin`; it gives hooks no access to each other."""
    frame = sys._getframe(2).f_locals
    session = frame.get("self")
    if not hasattr(session, "_hooks"):
        raise HvdFtError(
            "FaultTolerance has to be a hook of a monitored session or of Estimator.train itself, "
            "not inside another hook"
        )
    return session


def _with_parts(hooks: Iterable[Any]) -> Iterator[Any]:
    """The hooks together with objects of theirs that have state: timers and listeners."""
    for hook in hooks:
        yield hook
        for value in vars(hook).values():
            items = value if isinstance(value, list) else [value]
            parts = (_train.SecondOrStepTimer, _train.CheckpointSaverListener)
            yield from _with_parts(item for item in items if isinstance(item, parts))
