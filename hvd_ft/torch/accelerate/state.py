"""`State` for a loop with Accelerate: as `hvd_ft.torch.State`, for what `prepare` returns."""

from collections.abc import Mapping
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.data_loader import (
    DataLoaderDispatcher,
    DataLoaderShard,
    SeedableRandomSampler,
    get_sampler,
)
from accelerate.utils import synchronize_rng_states

import hvd_ft.torch.state
from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.worker.snapshot_interval import DEFAULT_OVERHEAD


class State(hvd_ft.torch.state.State):
    """Everything that a training loop with Accelerate changes from step to step.

    Without an agent it only counts.

    Args:
        accelerator: that prepared the values. Its gradient accumulation and its scaler are kept.
        snapshot_steps: see `hvd_ft.torch.State`.
        snapshot_overhead: likewise.
        values: likewise, such as the model, the optimizer and the scheduler that
            `accelerator.prepare` returned.

    Raises:
        HvdFtError: an argument is out of range or has a name that State itself uses.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        *,
        snapshot_steps: int | None = None,
        snapshot_overhead: float = DEFAULT_OVERHEAD,
        **values: Any,
    ) -> None:
        progress = _Progress(accelerator)
        super().__init__(
            snapshot_steps=snapshot_steps,
            snapshot_overhead=snapshot_overhead,
            accelerator=progress,
            **values,
        )
        self._progress = progress
        self._rng_types: list[Any] | None = None  # that the ranks have in common in each pass

    def sync(self) -> None:
        """Begins the training loop; see `hvd_ft.torch.State`."""
        if native.worker() is not None:
            super().sync()

    def _enter(self, loader: Any) -> None:
        if isinstance(loader, DataLoaderDispatcher):
            raise HvdFtError(
                "rank 0 draws the batches of this loader for all ranks, which a restarted rank "
                "cannot repeat: give Accelerator(dataloader_config="
                "DataLoaderConfiguration(dispatch_batches=False))"
            )
        if isinstance(loader, DataLoaderShard):
            _make_generator(loader)
            self._prepare_pass(loader)
        super()._enter(loader)

    def _prepare_pass(self, loader: DataLoaderShard) -> None:
        """Does what a prepared loader does where a pass begins, and a restart must not repeat.

        The loader would broadcast the state of rank 0's generator, which the others do not do when
        one rank repeats a pass.
        """
        if loader.rng_types is not None:
            self._rng_types, loader.rng_types = loader.rng_types, None
        data = self._rest["rng"].get("data") if self._resumed and self._rest is not None else None
        if data is not None:
            loader.iteration = self._progress.iteration - (len(data["passes"]) - 1)
            return
        if self._rng_types:
            synchronize_rng_states(self._rng_types, loader.synchronized_generator)
        self._progress.iteration = loader.iteration


def _make_generator(loader: DataLoaderShard) -> None:
    """Makes the generator that a sampler would make in its first pass, which a restart may be in.

    The sampler seeds it at the beginning of each pass.
    """
    sampler = get_sampler(loader)
    if isinstance(sampler, SeedableRandomSampler) and sampler.generator is None:
        sampler.generator = torch.Generator()


class _Progress:
    """What an Accelerator itself counts.

    Attributes:
        iteration: number of the loader's pass, by which samplers shuffle.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self.iteration = 0

    def state_dict(self) -> dict[str, Any]:
        """Returns it, for a snapshot."""
        accelerator = self._accelerator
        scaler = getattr(accelerator, "scaler", None)
        return {
            "step": accelerator.step,
            "iteration": self.iteration,
            "sync_gradients": bool(accelerator.gradient_state.sync_gradients),
            "skipped": [bool(each.step_was_skipped) for each in accelerator._optimizers],
            "scaler": None if scaler is None else scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets what `state_dict` returned."""
        accelerator = self._accelerator
        accelerator.step, self.iteration = state["step"], state["iteration"]
        accelerator.gradient_state._set_sync_gradients(state["sync_gradients"])
        for optimizer, skipped in zip(accelerator._optimizers, state["skipped"], strict=True):
            optimizer._is_overflow = skipped
        if state["scaler"] is not None:
            accelerator.scaler.load_state_dict(state["scaler"])
