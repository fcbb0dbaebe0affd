"""What the explanation of the anomaly predicts for placements that it was not made for. Pure.

Written down before anything was measured: see README.md.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

BASE = "4-2-2"  # with which placements are compared
_ALIKE, _TWICE = (0.9, 1.1), (1.8, 2.2)
# An idle link lets 128 KiB of each MB pass at once, so what takes twice as long takes a bit less.
_SUFFERS = (1.5, 2.2)
_ROUND_ROBIN = "round-robin:4-2-2"

# For each side: the time of a placement, as a multiple of that of 4-2-2.
PREDICTED: Mapping[str, Mapping[str, tuple[float, float]]] = {
    # A rank alone on its node sends and receives in turn, and both over the network.
    "serial": {
        "3-3-2": _ALIKE,
        "4-3-1": _SUFFERS,
        "6-1-1": _SUFFERS,
        _ROUND_ROBIN: _TWICE,
    },
    # Both directions at once: only the number of edges that share a link matters.
    **{
        side: {"3-3-2": _ALIKE, "4-3-1": _ALIKE, "6-1-1": _ALIKE, _ROUND_ROBIN: _TWICE}
        for side in ("irecv_send_wait", "threads", "endpoints", "one endpoint")
    },
    # One edge leads away from every node, whatever the placement.
    **{
        side: {"3-3-2": _ALIKE, "4-3-1": _ALIKE, "6-1-1": _ALIKE, _ROUND_ROBIN: _ALIKE}
        for side in ("by host", "hierarchical")
    },
}


@dataclass(frozen=True)
class Verdict:
    """What became of a prediction.

    Attributes:
        size: Bytes of the array.
        side: Whose time.
        placement: Where.
        ratio: Of the median there to that in `BASE`.
        least, most: Between which it was to be.
    """

    size: int
    side: str
    placement: str
    ratio: float
    least: float
    most: float

    @property
    def held(self) -> bool:
        """Whether it came true."""
        return self.least <= self.ratio <= self.most


def verdicts(seconds: Mapping[tuple[int, str, str], Sequence[float]]) -> Iterator[Verdict]:
    """Yields a verdict for each prediction that was measured.

    Args:
        seconds: What was measured, by size, side and placement.
    """
    for size in sorted({size for size, _, _ in seconds}):
        for side, placements in PREDICTED.items():
            base = seconds.get((size, side, BASE))
            for placement, (least, most) in placements.items():
                own = seconds.get((size, side, placement))
                if base and own:
                    ratio = statistics.median(own) / statistics.median(base)
                    yield Verdict(size, side, placement, ratio, least, most)
