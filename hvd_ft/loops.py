"""Training loops of this process: their numbers, their snapshots and how they end.

Loops are numbered in the order in which the script begins them, whoever runs them (the Keras
callback or a `State`), so a restarted script finds its snapshots by counting the same way.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hvd_ft.errors import HvdFtError
from hvd_ft.native import Worker
from hvd_ft.snapshot import decode, encode

_begun = 0
_open: "TrainingLoop | None" = None


class TrainingLoop:
    """One training loop.

    Args:
        worker: this process's attachment to its agent.
        snapshot_steps: steps from one snapshot to the next, at least 1.

    Raises:
        HvdFtError: `snapshot_steps` is out of range.
    """

    def __init__(self, worker: Worker, snapshot_steps: int) -> None:
        check_snapshot_steps(snapshot_steps)
        self.number = -1
        self._worker = worker
        self._snapshot_steps = snapshot_steps
        self._snapshot_step = 0  # of the latest snapshot

    def begin(self) -> dict[str, Any] | None:
        """Begins the loop: collectives from here on belong to it.

        A loop that is still open ends here. It gets no last snapshot: the script may have done
        collectives since its last step, and a restarted one has to do these again.

        Returns:
            The values of the loop's snapshot if this process is to go on from one, else None.
        """
        global _begun, _open
        if _open is not None:
            _open.end()
        self.number, _begun, _open = _begun, _begun + 1, self
        self._worker.loop_begin(self.number)
        if self._worker.incarnation == 0 or self._worker.snapshot_read(self.number) is None:
            return None
        return self.snapshot()[1]

    def snapshot(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Returns arrays and values of the latest snapshot, valid until the next call here."""
        data = self._worker.snapshot_read(self.number)
        assert data is not None, "begin() has seen one"
        arrays, values = decode(data)
        self._snapshot_step = values["step"]
        return arrays, values

    def jump(self) -> None:
        """Goes on in the op log after the latest snapshot."""
        self._worker.jump(self.number)

    def set_step(self, step: int) -> None:
        """Tells everyone who looks that `step` steps of this loop are done."""
        self._worker.set_step(step)

    def wants_snapshot(self, step: int) -> bool:
        """Tells whether a snapshot is due and possible: no collective may be on its way."""
        due = step - self._snapshot_step >= self._snapshot_steps
        return due and self._worker.pending() == 0

    def write(self, step: int, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> None:
        """Publishes a snapshot of this moment, `step` steps of the loop being done."""
        self._worker.snapshot_write(self.number, encode(arrays, {**values, "step": step}))
        self._snapshot_step = step

    def can_finish(self) -> bool:
        """Tells whether a last snapshot can be taken: not done yet, no collective on its way."""
        return not self._worker.loop_ended(self.number) and self._worker.pending() == 0

    def end(self) -> None:
        """Ends the loop; without a last snapshot a restarted process runs its last steps again."""
        global _open
        self._worker.loop_end(self.number)
        if _open is self:
            _open = None


def check_snapshot_steps(snapshot_steps: int) -> None:
    """Raises HvdFtError unless `snapshot_steps` is an int of at least 1."""
    if not isinstance(snapshot_steps, int) or snapshot_steps < 1:
        raise HvdFtError(
            f"snapshot_steps={snapshot_steps!r} is not allowed: give the number of steps from one "
            "snapshot to the next, at least 1"
        )
