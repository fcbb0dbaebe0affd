"""What a checkpoint writer copies is what its ranks have written, or it is not taken."""

from typing import Any

import numpy as np
import pytest

from hvd_ft.checkpointer.capture import capture
from hvd_ft.checkpointer.cuts import Cut, Held
from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import Snapshot
from hvd_ft.worker.shared_contents import MIN_SHARED_BYTES, Part, fingerprints, freeze

CUT, POSITION = 3, 100


class Slots:
    """Two ranks' slots of one cut: an array that both share, and one of each rank's own."""

    def __init__(self) -> None:
        self.data, self.held = {}, {}
        for rank in range(2):
            shared = np.arange(MIN_SHARED_BYTES, dtype=np.uint16)
            kept, values = freeze({"0:w": shared, "1:own": np.full(50, rank + 7)}, {"step": 1})
            prints = fingerprints(kept, CUT, POSITION)
            part = Part(kept, values, ["0:w"], rank, 2, prints=prints)
            room = np.zeros(part.bytes, np.uint8)
            for _ in part.write(room):
                pass
            found = Snapshot(CUT, POSITION, part.bytes, part.stripe, 9)
            self.data[rank], self.held[rank] = room, Held(0, 0, found)

    def copy(self, rank: int, loop: int, slot: int, snapshot: Snapshot, to: np.ndarray) -> bool:
        to[:] = self.data[rank]
        return True

    def capture(self) -> Any:
        return capture(self, {Cut(0, CUT): self.held})  # type: ignore[arg-type]


def test_what_ranks_share_and_have_of_their_own() -> None:
    found = Slots().capture()[Cut(0, CUT)]
    for rank, captured in found.items():
        assert captured.position == POSITION
        assert captured.contents.arrays["0:w"][-1] == MIN_SHARED_BYTES - 1
        assert (captured.contents.arrays["1:own"] == rank + 7).all()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("what", "named"),
    [("stripe", "rank 0 .* the variable 0:w"), ("own", "rank {} .* the variable 1:own")],
)
def test_a_flipped_bit_is_named(rank: int, what: str, named: str) -> None:
    slots = Slots()
    data = slots.data[rank]
    at = slots.held[rank].snapshot.stripe if what == "stripe" else None
    if at is None:
        at = data.tobytes().index(np.full(50, rank + 7).tobytes())
    data[at + 3] ^= 1
    with pytest.raises(HvdFtError, match=named.format(rank) + " is not as it was written"):
        slots.capture()
