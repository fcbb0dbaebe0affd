"""How far a Trainer has come: its loops, what it has logged, its callbacks and its module."""

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.loops.loop import _Loop
from lightning.pytorch.loops.progress import _BaseProgress
from torchmetrics import Metric

from hvd_ft.torch.lightning.attributes import is_plain, plain_attributes, set_attributes
from hvd_ft.torch.lightning.results import (
    metric_state,
    restore_metric,
    restore_results,
    results_state,
)

_OF_EVERY_MODULE = frozenset(vars(pl.LightningModule()))
# What a restarted process has from its own beginning: limits, stages of Lightning's checkpoints.
_OF_EVERY_LOOP = frozenset(
    (
        *("_restarting", "_loaded_from_state_dict", "_resuming_from_checkpoint", "_restart_stage"),
        *("max_epochs", "min_epochs", "max_steps", "min_steps", "max_batches", "_max_batches"),
        *("verbose", "inference_mode", "_combined_loader_states_to_load"),
    )
)


class TrainerProgress:
    """Keeps what a Trainer changes from step to step, besides modules, optimizers and schedulers.

    Args:
        trainer: within `fit`.
        leave_out: the callback whose state is not wanted.
    """

    def __init__(self, trainer: pl.Trainer, leave_out: Any) -> None:
        self._trainer = trainer
        self._callbacks = [each for each in trainer.callbacks if each is not leave_out]

    def state_dict(self) -> dict[str, Any]:
        """Returns it, for a snapshot.

        Raises:
            HvdFtError: something cannot be kept.
        """
        trainer, module = self._trainer, self._trainer.lightning_module
        return {
            "should_stop": trainer.should_stop,
            "loops": [_loop_state(loop) for loop in _loops(trainer.fit_loop)],
            "results": [results_state(each) for each in self._results()],
            "logged": plain_attributes(trainer._logger_connector),
            "callbacks": [_callback_state(each) for each in self._callbacks],
            "module": plain_attributes(module, _OF_EVERY_MODULE),
            "metrics": {name: metric_state(each) for name, each in self._metrics()},
            "precision": trainer.precision_plugin.state_dict(),
            "data": None if trainer.datamodule is None else trainer.datamodule.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets what `state_dict` returned."""
        trainer, module = self._trainer, self._trainer.lightning_module
        trainer.should_stop = state["should_stop"]
        for loop, its in zip(_loops(trainer.fit_loop), state["loops"], strict=True):
            _restore_loop(loop, its)
        metrics = dict(self._metrics())
        for name, its in state["metrics"].items():
            restore_metric(metrics[name], its)
        for results, its in zip(self._results(), state["results"], strict=True):
            restore_results(results, its, module, trainer.strategy.reduce)
        set_attributes(trainer._logger_connector, state["logged"])
        for callback, its in zip(self._callbacks, state["callbacks"], strict=True):
            _restore_callback(callback, its)
        set_attributes(module, state["module"])
        trainer.precision_plugin.load_state_dict(state["precision"])
        if trainer.datamodule is not None:
            trainer.datamodule.load_state_dict(state["data"])

    def _results(self) -> list[Any]:
        loop = self._trainer.fit_loop.epoch_loop
        return [loop._results, loop.val_loop._results]

    def _metrics(self) -> list[tuple[str, Metric]]:
        modules = self._trainer.lightning_module.named_modules()
        return [(name, each) for name, each in modules if isinstance(each, Metric)]


def _loops(loop: _Loop) -> list[_Loop]:
    """Returns a loop and those within it."""
    inner = [each for each in vars(loop).values() if isinstance(each, _Loop)]
    return [loop, *(each for below in inner for each in _loops(below))]


def _loop_state(loop: _Loop) -> dict[str, Any]:
    progress = {
        name: each.state_dict()
        for name, each in vars(loop).items()
        if isinstance(each, _BaseProgress)
    }
    return {"progress": progress, "own": plain_attributes(loop, _OF_EVERY_LOOP)}


def _restore_loop(loop: _Loop, state: Mapping[str, Any]) -> None:
    for name, its in state["progress"].items():
        getattr(loop, name).load_state_dict(its)
    set_attributes(loop, state["own"])


def _callback_state(callback: pl.Callback) -> dict[str, Any]:
    given = callback.state_dict()
    own = plain_attributes(callback)
    return {"own": own, "given": {} if is_plain(given) and _covers(own, given) else given}


def _restore_callback(callback: pl.Callback, state: Mapping[str, Any]) -> None:
    if state["given"]:
        callback.load_state_dict(state["given"])
    set_attributes(callback, state["own"])


def _covers(own: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Returns whether a callback's state is in its attributes, as that of Lightning's own is."""
    return all(name in own for name in given)
