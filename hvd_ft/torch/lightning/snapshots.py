"""`Snapshots`: the callback with which a Trainer continues at the step where a rank died."""

from functools import partial
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.strategies import DDPStrategy

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.torch.lightning.fit_state import FitState
from hvd_ft.torch.sampler import ElasticSampler
from hvd_ft.worker.snapshot_interval import DEFAULT_OVERHEAD, check_snapshot_settings


class Snapshots(pl.Callback):
    """Takes snapshots of everything that `Trainer.fit` changes from step to step.

    A rank that dies continues from its latest snapshot: module, optimizers, schedulers, the
    Trainer's loops, what was logged, callbacks, random generators and the position in the data.
    Without an agent it does nothing.

    Args:
        snapshot_steps: batches from one snapshot to the next, at least 1; None: chosen by
            `snapshot_overhead`.
        snapshot_overhead: share of the training time that snapshots may take.

    Raises:
        HvdFtError: an argument is out of range.
    """

    def __init__(
        self, snapshot_steps: int | None = None, snapshot_overhead: float = DEFAULT_OVERHEAD
    ) -> None:
        check_snapshot_settings(snapshot_steps, snapshot_overhead)
        self._settings = (snapshot_steps, snapshot_overhead)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Takes part in the loops of a fit.

        Raises:
            HvdFtError: the Trainer has something that snapshots do not support.
        """
        if stage == "fit" and native.worker() is not None:
            _check(trainer)
            _Steps(trainer, self, self._settings).follow()

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leaves the Trainer as it was."""
        if stage == "fit":
            _leave(trainer)


class _Steps:
    """Follows the loops of one fit: where they begin, where each batch begins, and their end."""

    def __init__(
        self, trainer: pl.Trainer, callback: Snapshots, settings: tuple[int | None, float]
    ) -> None:
        self._trainer = trainer
        self._callback = callback
        self._settings = settings
        self._state: FitState | None = None

    def follow(self) -> None:
        """Puts the functions below before those of the loops, which have no hooks there."""
        _leave(self._trainer)  # a fit before this one may have failed
        loop = self._trainer.fit_loop
        loop.advance = partial(self._epoch, loop.advance)
        loop.on_run_end = partial(self._end, loop.on_run_end)
        loop.epoch_loop.advance = partial(self._batch, loop.epoch_loop.advance)

    def _epoch(self, advance: Any) -> None:
        if self._state is None:
            trainer = self._trainer
            _check_data(trainer)
            _set_up_validation(trainer)
            self._state = FitState(trainer, self._callback, *self._settings)
            if self._state.begin():
                raise StopIteration  # as Lightning ends its loops
        advance()

    def _batch(self, advance: Any, fetcher: Any) -> None:
        if self._state is not None:
            self._state.step()
        advance(fetcher)

    def _end(self, on_run_end: Any) -> None:
        if self._state is not None:
            self._state.finish()
            self._state = None
        on_run_end()


def _leave(trainer: pl.Trainer) -> None:
    loop = trainer.fit_loop
    for changed, name in ((loop, "advance"), (loop, "on_run_end"), (loop.epoch_loop, "advance")):
        vars(changed).pop(name, None)


def _set_up_validation(trainer: pl.Trainer) -> None:
    """Makes the loaders of validation, for which the ranks wait, before any snapshot."""
    trainer.validating = True
    trainer.fit_loop.epoch_loop.val_loop.setup_data()
    trainer.training = True


def _check(trainer: pl.Trainer) -> None:
    if not isinstance(trainer.strategy, DDPStrategy):
        raise HvdFtError(
            f"snapshots of a Trainer with {type(trainer.strategy).__name__} are not supported: "
            "give strategy=DDPStrategy(process_group_backend='hvd_ft')"
        )
    if trainer.reload_dataloaders_every_n_epochs:
        raise HvdFtError(
            "Trainer(reload_dataloaders_every_n_epochs=...) makes loaders that a restarted rank "
            "would not have: leave it out, or leave out the callback Snapshots"
        )
    if trainer._val_check_time_interval is not None:
        raise HvdFtError(
            "Trainer(val_check_interval=...) by time validates at other steps when a rank is "
            "restarted: give it as a number of batches, or a share of an epoch"
        )


def _check_data(trainer: pl.Trainer) -> None:
    for loader in trainer.fit_loop._combined_loader.flattened:
        if isinstance(getattr(loader, "sampler", None), ElasticSampler):
            raise HvdFtError(
                "the loader of a Trainer has an ElasticSampler, but a Trainer keeps its number of "
                "ranks: leave sampler= out, and Lightning deals the data out"
            )
