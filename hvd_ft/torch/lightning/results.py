"""What a training has logged so far: Lightning's collections of results, and torchmetrics' states.

Lightning adds up what `self.log(..., on_epoch=True)` gets until the epoch ends.
"""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.trainer.connectors.logger_connector.result import (
    _Metadata,
    _ResultCollection,
    _ResultMetric,
    _Sync,
)
from torchmetrics import Metric

from hvd_ft.errors import HvdFtError

_FIELDS = (
    *("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph"),
    *("add_dataloader_idx", "dataloader_idx", "metric_attribute"),
)
_COUNTS = ("_update_count", "_computed", "_forward_cache")


def metric_state(metric: Metric) -> dict[str, Any]:
    """Returns what a metric has added up, for a snapshot."""
    return {name: getattr(metric, name) for name in (*metric._defaults, *_COUNTS)}


def restore_metric(metric: Metric, state: Mapping[str, Any]) -> None:
    """Sets a metric to a state that `metric_state` returned."""
    for name, value in state.items():
        setattr(metric, name, value)


def results_state(results: _ResultCollection) -> list[dict[str, Any]]:
    """Returns a collection's results, for a snapshot.

    Raises:
        HvdFtError: one of them is reduced in a group of its own.
    """
    return [_result_state(key, result) for key, result in results.items()]


def restore_results(
    results: _ResultCollection, states: list[dict[str, Any]], module: Any, reduce: Any
) -> None:
    """Sets a collection to states that `results_state` returned.

    Args:
        results: the collection.
        states: as above.
        module: the LightningModule, which has the metrics that are logged as such.
        reduce: the strategy's function.
    """
    results.clear()
    for state in states:
        meta = _Metadata(reduce_fx=state["reduce"], **state["meta"])
        function = reduce if state["sync"]["reduces"] else _Sync.no_op
        meta.sync = _Sync(
            fn=function,
            _should=state["sync"]["should"],
            rank_zero_only=state["sync"]["rank_zero_only"],
        )
        result = _ResultMetric(meta, state["is_tensor"])
        if state["is_tensor"]:
            restore_metric(result, state["state"])
        else:
            restore_metric(result, {name: state["state"][name] for name in _COUNTS})
            result.value = module.get_submodule(state["meta"]["metric_attribute"])
        result.has_reset = state["has_reset"]
        results[state["key"]] = result


def _result_state(key: str, result: _ResultMetric) -> dict[str, Any]:
    meta = result.meta
    if meta.sync.group is not None:
        raise HvdFtError(
            f"self.log({meta.name!r}, sync_dist_group=...) cannot be kept in a snapshot: leave "
            "sync_dist_group out, so that all ranks reduce it"
        )
    return {
        "key": key,
        "meta": {name: getattr(meta, name) for name in _FIELDS},
        "reduce": meta.reduce_fx.__name__,
        "sync": {
            "reduces": meta.sync.fn is not _Sync.no_op,
            "should": meta.sync.should,
            "rank_zero_only": meta.sync.rank_zero_only,
        },
        "is_tensor": result.is_tensor,
        "has_reset": result.has_reset,
        "state": metric_state(result),
    }
