"""From which of its snapshots a restarted process continues, as some may be damaged.

The op log is truncated up to the latest snapshots that ranks have *published*. So a process that
finds damage can use an older snapshot only if the latest one is complete but its rank had not
published it yet: the rank died while other ranks still wrote their parts, or right after. Otherwise
the log may no longer contain the ops since the older snapshot, and the job ends.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hvd_ft.errors import HvdFtError
from hvd_ft.native.core import Worker
from hvd_ft.system.say import say
from hvd_ft.worker.shared_contents import Place, unpack

Contents = tuple[Mapping[str, np.ndarray], dict[str, Any]]  # arrays and values


def latest_whole(worker: Worker, loop: int) -> Contents | None:
    """Returns the latest snapshot that is not damaged; None if the loop has to start over.

    A damaged snapshot that is skipped is reported on stderr.

    Args:
        worker: this process's attachment to its agent.
        loop: number of the training loop.

    Raises:
        HvdFtError: the latest one is damaged, and the op log does not reach back to another one.
    """
    damage: HvdFtError | None = None
    while True:
        try:
            found = _read(worker, loop)
        except HvdFtError as error:
            if not worker.snapshot_refuse(loop):
                raise _unusable(loop, error) from error
            damage = error
            continue
        if damage is not None:
            to = "the loop's beginning" if found is None else "the one before"
            say(
                f"rank {worker.rank} goes back to {to}: its latest snapshot of training loop "
                f"{loop} cannot be used: {damage}"
            )
        return found


def latest(worker: Worker, loop: int) -> Contents:
    """Returns the snapshot that `latest_whole` has found, valid until the next snapshot call.

    Args:
        worker: this process's attachment to its agent.
        loop: number of the training loop.

    Raises:
        HvdFtError: the snapshot has been damaged since.
    """
    try:
        found = _read(worker, loop)
    except HvdFtError as error:
        raise _unusable(loop, error) from error
    assert found is not None, "latest_whole() has seen one"
    return found


def _read(worker: Worker, loop: int) -> Contents | None:
    found = worker.snapshot_read(loop)
    if found is None:
        return None
    about, own = found
    stripes = worker.snapshot_stripes(loop, about.position) if about.agreement else []
    return unpack(own, stripes, Place(about.cut, about.position))


def _unusable(loop: int, error: HvdFtError) -> HvdFtError:
    return HvdFtError(
        f"the snapshot of training loop {loop} cannot be used: {error}; the op log need not reach "
        "back further; start the job again, from its last checkpoint if it has one"
    )
