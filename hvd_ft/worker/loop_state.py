"""The part of a `State` that needs no framework: its values, its commits, and its end."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from hvd_ft.errors import HvdFtError
from hvd_ft.native.core import Worker
from hvd_ft.worker.divergence_rule import Kind
from hvd_ft.worker.rosters import Contents
from hvd_ft.worker.snapshot_interval import check_snapshot_settings
from hvd_ft.worker.training_loop import TrainingLoop


class LoopState(ABC):
    """Everything a training loop changes from step to step: what all frameworks have in common.

    Args:
        snapshot_steps: commits from one snapshot to the next, at least 1; None: chosen by
            `snapshot_overhead`.
        snapshot_overhead: share of the training time that snapshots may take.
        values: they become attributes; `epoch` and `batch` are 0 unless they are given.

    Raises:
        HvdFtError: an argument is out of range or has a name that the class itself uses.
    """

    epoch: int
    batch: int

    def __init__(
        self,
        snapshot_steps: int | None,
        snapshot_overhead: float,
        values: Mapping[str, Any],
    ) -> None:
        check_snapshot_settings(snapshot_steps, snapshot_overhead)
        self._snapshots = (snapshot_steps, snapshot_overhead)
        self._commits = 0
        self._resumed = False
        self._reset_callbacks: list[Callable[[], object]] = []
        self._by_batches = False  # whether the loop draws its data through `batches`
        self._sampled = False  # whether that is data of an ElasticSampler
        self._loop: TrainingLoop | None = None
        values = {"epoch": 0, "batch": 0, **values}
        for name in values:
            if hasattr(self, name):
                raise HvdFtError(f"State reserves the name {name}: give the value another name")
        self._names = tuple(values)
        vars(self).update(values)

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Registers functions for a change of `hvd.size()`, as those of `hvd.elastic` do.

        When ranks leave the running job or return to it, `commit` calls the functions in order. On
        a rank that returns, and in new processes, `sync` calls them if it has loaded the state of
        another number of ranks. Everything they change has to be part of this State: a process that
        is restarted later finds it there, and does not call the functions again.

        Args:
            callbacks: functions without arguments, such as one that adapts the learning rate.
        """
        self._reset_callbacks += callbacks

    def commit(self) -> None:
        """Marks the end of a step; takes a snapshot if one is due.

        Call it at the end of the loop's body: a restarted process continues at the body's
        beginning.

        Raises:
            HvdFtError: a value cannot be kept.
        """
        self._commits += 1
        if self._loop is None:
            return
        self._loop.set_step(self._commits)
        self._loop.flip(self._commits, self._read, self._assign)
        if self._loop.begin_roster(self._commits, self._contents):
            self._reset()
        self._keep(self._loop)

    def finish(self) -> None:
        """Marks the end of the loop, so that a process restarted later skips it at once.

        Call it right after the loop, before any other collective. It may be omitted: then a process
        restarted later repeats the steps since the last snapshot from the log.
        """
        if self._loop is None:
            return
        self._restore_rest(skipped=True)
        if self._loop.can_finish() and self._is_at_rest():
            self._loop.write(self._commits, self._contents, last=True)
        self._loop.end()
        self._loop = None

    def _begin_loop(self, worker: Worker) -> None:
        """Begins the training loop, and continues from its snapshot if there is one."""
        self._loop = loop = TrainingLoop(worker, *self._snapshots)
        loop.kinds = self._kinds()
        left = loop.begin()
        self._begun(loop)
        if left is not None:
            self._restore(loop)
        if loop.returned:
            loop.set_step(self._commits)
        if loop.resized is not None or loop.returned:
            self._reset()
        if loop.returned:  # as the others do at this boundary
            self._keep(loop)
        loop.check_room(*self._bytes())

    def _reset(self) -> None:
        for callback in self._reset_callbacks:
            callback()

    def _keep(self, loop: TrainingLoop) -> None:
        if loop.wants_snapshot(self._commits) and self._is_at_rest():
            loop.write(self._commits, self._contents)

    def _is_at_rest(self) -> bool:
        """Returns whether a snapshot can be taken here, as far as the framework knows."""
        return True

    def _begun(self, loop: TrainingLoop) -> None:  # noqa: B027 (nothing by default)
        """Prepares for a loop that has just begun."""

    @abstractmethod
    def _kinds(self) -> Mapping[str, Kind]:
        """Returns the known kinds of the arrays, by name."""

    @abstractmethod
    def _read(self) -> Mapping[str, np.ndarray]:
        """Returns the arrays that a snapshot of this moment has, by name."""

    @abstractmethod
    def _assign(self, name: str, array: np.ndarray) -> None:
        """Sets one of them."""

    @abstractmethod
    def _bytes(self) -> tuple[int, int]:
        """Returns the bytes of a snapshot's arrays, and those of the gradients."""

    @abstractmethod
    def _contents(self) -> Contents:
        """Returns arrays and values for a snapshot of this moment."""

    @abstractmethod
    def _restore(self, loop: TrainingLoop) -> None:
        """Continues from the loop's snapshot, and jumps to its position in the log."""

    @abstractmethod
    def _restore_rest(self, *, skipped: bool = False) -> None:
        """Restores what is restored where the loop is entered, or is skipped."""


def has_state(value: Any) -> bool:
    """Returns whether a value is kept by its `state_dict`."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
