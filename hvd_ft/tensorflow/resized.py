"""Where a training loop continues if its checkpoint was written by another number of ranks. Pure.

Data is divided anew, so the old positions in it have no owner any more. The new position is where
the ranks together have drawn about as much as before; passes before the present one are forgotten.
"""

from typing import Any

from hvd_ft.worker.resized import scaled


def of_fit(values: dict[str, Any], ranks: tuple[int, int], steps: int | None) -> dict[str, Any]:
    """Returns the values of a fit's snapshot for another number of ranks.

    Args:
        values: of the snapshot; see FitLoop.
        ranks: of the earlier job and of this one.
        steps: of an epoch, if that is known.
    """
    done = values["epoch_begin"] + values["epoch_step"]
    drawn = scaled(done - values["passes"][-1], ranks) if values["passes"] else 0
    epoch, begin = values["epoch"], values["epoch_begin"]
    in_epoch = scaled(values["epoch_step"], ranks)
    if steps is not None and in_epoch >= steps and not values["done"]:
        # The epoch is over for this number of ranks; a pass that lasts longer goes on.
        epoch, begin, in_epoch = epoch + 1, begin + in_epoch, 0
        drawn = drawn if values["passes"] and values["passes"][-1] < values["epoch_begin"] else 0
    now = begin + in_epoch
    place = {"epoch": epoch, "epoch_begin": begin, "epoch_step": in_epoch}
    return {**values, **place, "lengths": [], "passes": [now - drawn], "validations": []}


def of_sampled_fit(values: dict[str, Any], over: bool) -> dict[str, Any]:
    """Returns the values of a fit's snapshot for another number of ranks, with an ElasticSampler.

    Args:
        values: of the snapshot; see FitLoop.
        over: whether its epoch is over for this number of ranks.
    """
    if over:
        place = {"epoch": values["epoch"] + 1, "epoch_step": 0}
        begin = values["epoch_begin"] + values["epoch_step"]
        values = {**values, **place, "epoch_begin": begin}
    return {**values, "validations": []}


def of_returned_fit(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of rank 0's fit with which a rank returning to a running job continues.

    The rank has no files of its own yet; rank 0's files may lie where both can write.

    Args:
        values: see FitLoop.
    """
    return {**values, "files": {"tables": [], "events": {}, "traces": []}}


def of_session(values: dict[str, Any], ranks: tuple[int, int]) -> dict[str, Any]:
    """Returns the values of a session's snapshot for another number of ranks.

    Args:
        values: of the snapshot; see estimator/fault_tolerance.py.
        ranks: of the earlier job and of this one.
    """
    draws = {name: scaled(count, ranks) for name, count in values["draws"].items()}
    return {**values, "draws": {name: count for name, count in draws.items() if count}}
