"""The state of one `Trainer.fit`: what its snapshots hold, and where it continues.

A restarted process runs its script and the Trainer from the beginning, as an undisturbed one does,
up to the first batch. There it takes over the snapshot, with which it is at the batch that follows
the snapshot: the Trainer's loops ask the state of their progress for everything they do next.
"""

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl

from hvd_ft import native
from hvd_ft.torch import op_names
from hvd_ft.torch.lightning.fetched import EnteredData, FetchedData
from hvd_ft.torch.lightning.progress import TrainerProgress
from hvd_ft.torch.state import State
from hvd_ft.worker.rosters import Contents
from hvd_ft.worker.training_loop import TrainingLoop


class FitState(State):
    """Keeps a Trainer, and sets another process's Trainer to it.

    Args:
        trainer: within `fit`, its loaders set up.
        leave_out: the callback that takes the snapshots.
        snapshot_steps: see State.
        snapshot_overhead: see State.

    Attributes:
        finished: whether all batches are done.

    Raises:
        HvdFtError: a setting is out of range.
    """

    finished: bool

    def __init__(
        self,
        trainer: pl.Trainer,
        leave_out: pl.Callback,
        snapshot_steps: int | None,
        snapshot_overhead: float,
    ) -> None:
        optimizers = {f"optimizer{at}": each for at, each in enumerate(trainer.optimizers)}
        schedulers = {
            f"scheduler{at}": each.scheduler for at, each in enumerate(trainer.lr_scheduler_configs)
        }
        super().__init__(
            snapshot_steps=snapshot_steps,
            snapshot_overhead=snapshot_overhead,
            model=trainer.lightning_module,
            **optimizers,
            **schedulers,
            trainer=TrainerProgress(trainer, leave_out),
            fetched={},
            finished=False,
        )
        self._by_batches = True
        self._fetcher = trainer.fit_loop._data_fetcher
        combined = self._fetcher.combined_loader
        self._source = FetchedData(combined)
        self._fetcher.setup(EnteredData(combined, self._begin_pass))
        # With a length it prefetches none.
        is_sized = self._fetcher.length is not None
        self._prefetches = 0 if is_sized else getattr(self._fetcher, "prefetch_batches", 0)
        self._has_begun_pass = False
        self._is_entered = False

    def begin(self) -> bool:
        """Begins the training loop, from the latest snapshot if there is one.

        Returns:
            Whether the snapshot has all batches done.
        """
        worker = native.worker()
        if worker is not None:
            self._begin_loop(worker)
        if self._rest is None:
            return False
        if self._rest["finished"]:
            self._restore_rest(skipped=True)
            return True
        if self._prefetches:  # it is drawn with the others
            self._fetcher.prefetch_batches, self._source.keeps_last = 0, True
        return False

    def step(self) -> None:
        """Marks that a batch is about to be fetched; everything before it is done."""
        if self._is_entered:
            self.commit()
            return
        resumes = self._resumed
        if not self._has_begun_pass:
            iter(self._fetcher)
        if resumes:
            self._resume_fetching()
        self._is_entered = True

    def _resume_fetching(self) -> None:
        fetcher = self._fetcher
        fetcher.fetched, fetcher.done = self.fetched["fetched"], self.fetched["done"]
        if self.fetched["epoch"] is not None:  # a pass may have drawn nothing yet
            self._source.sampler.epoch = self.fetched["epoch"]
        if self._source.keeps_last:
            fetcher.batches, fetcher.prefetch_batches = [self._source.last], self._prefetches
            self._source.keeps_last, self._source.last = False, None

    def finish(self) -> None:
        """Marks that all batches are done."""
        self.finished = True
        super().finish()

    def _begin_pass(self) -> Iterator[Any]:
        self._has_begun_pass = True
        self._enter(self._source)
        return self._data.batches(self._source)

    def _contents(self) -> Contents:
        self.fetched = {
            "fetched": self._fetcher.fetched,
            "done": self._fetcher.done,
            "epoch": self._source.sampler.epoch,
        }
        arrays, values = super()._contents()
        return arrays, {**values, "finished": self.finished}

    def _restore(self, loop: TrainingLoop) -> None:
        found, values = loop.snapshot()
        if loop.resized is not None:
            self._refuse_resized()
        op_names.restore_counts(values["names"])
        self._commits = values["step"]
        self._rest = values
        self._again = {name: self._copies.keep(name, array) for name, array in found.items()}
        self._resumed = True
        loop.jump()

    def _reset(self) -> None:
        self._refuse_resized()

    def _refuse_resized(self) -> None:
        worker = native.worker()
        if worker is not None:
            worker.fatal(
                "Lightning's Trainer keeps the number of ranks with which it began: leave "
                "--min-np out, and resume a checkpoint with as many ranks as it was taken with"
            )
