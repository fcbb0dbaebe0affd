"""Copies of a node's snapshots, made without a lock: they count only if no slot has changed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hvd_ft.checkpoint.manifest import Messages
from hvd_ft.checkpointer.cuts import Cut, Held, Parts
from hvd_ft.errors import HvdFtError
from hvd_ft.native.checkpointer import Checkpointer
from hvd_ft.worker.shared_contents import Contents, Place, contents


@dataclass(frozen=True)
class Captured:
    """A rank's snapshot of a training loop.

    Attributes:
        position: the rank's position in the op log.
        contents: contents of the snapshot.
    """

    position: int
    contents: Contents


def held(native: Checkpointer) -> dict[int, list[Held]]:
    """Returns the snapshots that each rank of the node has now."""

    def of_rank(rank: int) -> list[Held]:
        return [
            Held(loop, slot, found)
            for loop in range(native.loops(rank))
            for slot, found in native.slots(rank, loop)
        ]

    return {rank: of_rank(rank) for rank in native.place.ranks}


def capture(
    native: Checkpointer, wanted: Mapping[Cut, Parts]
) -> dict[Cut, dict[int, Captured]] | None:
    """Copies snapshots; None if one of them was overwritten meanwhile.

    Args:
        native: the node's side of the core.
        wanted: where the snapshots lie.

        Returns:
            The snapshots of each rank at each cut.

        Raises:
            HvdFtError: a copy is not a snapshot, or is damaged.
    """
    copies: dict[Cut, dict[int, np.ndarray]] = {}
    for cut, parts in wanted.items():
        copies[cut] = {}
        for rank, part in parts.items():
            copy = np.empty(part.snapshot.bytes, np.uint8)
            if not native.copy(rank, part.loop, part.slot, part.snapshot, copy):
                return None
            copies[cut][rank] = copy
    return {cut: _decoded(wanted[cut], copies[cut]) for cut in wanted}


def _decoded(parts: Parts, copies: Mapping[int, np.ndarray]) -> dict[int, Captured]:
    shared = any(part.snapshot.agreement for part in parts.values())
    stripes = [
        copies[rank].data[part.snapshot.stripe :] for rank, part in sorted(parts.items()) if shared
    ]
    captured: dict[int, Captured] = {}
    for rank, part in parts.items():
        place = Place(part.snapshot.cut, part.snapshot.position)
        try:
            # What is shared has the same fingerprints on all ranks.
            found = contents(copies[rank].data, stripes, place, check_shared=not captured)
        except HvdFtError as error:
            raise HvdFtError(
                f"the snapshot of training loop {part.loop} of rank {rank} cannot be used: {error}"
                "; the next checkpoint is tried as usual"
            ) from error
        captured[rank] = Captured(part.snapshot.position, found)
    return captured


def messages(native: Checkpointer, parts: Parts) -> tuple[list[Messages], list[Messages]]:
    """Returns how many messages the node's ranks had sent and received at a cut.

    Call it before `capture`, which finds out whether the slots have changed meanwhile.

    Args:
        native: the node's side of the core.
        parts: where the cut's snapshots lie.
    """

    def counts(*, sent: bool) -> list[Messages]:
        found = []
        for rank, part in parts.items():
            for other in range(native.place.size):
                pair = (rank, other) if sent else (other, rank)
                count = native.messages(*pair, sent=sent, loop=part.loop, slot=part.slot)
                if count is not None:
                    found.append(Messages(*pair, count))
        return found

    return counts(sent=True), counts(sent=False)
