"""Fits the model's machine to some of what was measured, and judges it on the rest. Pure."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.locality.placements import parse
from experiments.locality.ring_model import SIDES, UNLIMITED, Machine, seconds_of

# Known, not fitted. Bytes of a full frame, of which TCP's payload is a part; a token bucket of
# `hvdft cluster` (cluster/plan.py) lets a millisecond, or so much, pass at once.
PAYLOAD = 1448 / 1514
BURST_BYTES = 128 << 10
RATES = {"50mbit": 50e6, "200mbit": 200e6, "1gbit": 1e9, "none": None}
FITTED = ("handoff", "wire", "memory")
START = Machine(
    overhead=5e-6, handoff=1e-3, wire=3e-10, memory=2e-10, add=1e-10, stage=1e-10, start=1e-3,
    cpus=2, shared=True,
)  # fmt: skip
_FACTORS = (3.0, 1.6, 1.2, 1.06)  # from coarse to fine; the search is a descent


@dataclass(frozen=True)
class Measured:
    """A cell of a table.

    Attributes:
        part: of the experiment.
        rate: of the links, one of `RATES`.
        placement: of the ranks.
        size: bytes.
        side: what was measured.
        seconds: the fastest, for the model knows no other programs, and these only add to a time.
        median: of all.
    """

    part: str
    rate: str
    placement: str
    size: int
    side: str
    seconds: float
    median: float

    @property
    def limited_by_links(self) -> bool:
        """Whether the links are the limit, and not the CPUs that all nodes of a machine share."""
        return self.rate != "none"

    @property
    def fits(self) -> bool:
        """Whether the model is fitted to it; it is judged on all others.

        One side in two placements, one size of two rates: what others take is predicted.
        """
        largest = self.size == (8_000_000 if self.part == "placements" else 64_000_000)
        known = self.placement in ("4-2-2", "4-3-1") and self.rate in ("50mbit", "1gbit")
        return known and largest and self.side == "serial"


def cells(seconds: Mapping[tuple[str, str, str, int, str], Sequence[float]]) -> Iterator[Measured]:
    """Yields the cells that the model has an opinion about.

    Args:
        seconds: what was measured, by part, rate, placement, size and side.
    """
    for (part, rate, placement, size, side), own in seconds.items():
        if part in ("links", "placements") and side in SIDES and placement != "1-1-1":
            fastest, median = min(own), statistics.median(own)
            yield Measured(part, rate, placement, size, side, fastest, median)


def with_links(machine: Machine, rate: str) -> Machine:
    """Returns the machine with links of a rate."""
    bits = RATES[rate]
    if bits is None:
        return replace(machine, link=UNLIMITED, burst=0.0)
    burst = max(bits / 8 / 1000, BURST_BYTES) * PAYLOAD
    return replace(machine, link=bits / 8 * PAYLOAD, burst=burst)


def predicted(machine: Machine, cell: Measured) -> float:
    """Returns the seconds that the model says."""
    nodes = parse(cell.placement).nodes
    return seconds_of(with_links(machine, cell.rate), cell.side, nodes, cell.size)


def error(machine: Machine, cell: Measured) -> float:
    """Returns by which part of the measured time the model is wrong; above 0: it says more."""
    return predicted(machine, cell) / cell.seconds - 1


def fitted(measured: Sequence[Measured], machine: Machine = START) -> Machine:
    """Fits a machine's costs: coordinate descent on the squared logarithms of the ratios.

    Args:
        measured: cells; only those that `fits` are looked at.
        machine: where the search begins.
    """
    own = [cell for cell in measured if cell.fits]

    def loss(candidate: Machine) -> float:
        return sum(math.log(predicted(candidate, cell) / cell.seconds) ** 2 for cell in own)

    best = loss(machine)
    for factor in _FACTORS:
        moved = True
        while moved:
            moved = False
            for name in FITTED:
                for by in (factor, 1 / factor):
                    candidate = replace(machine, **{name: getattr(machine, name) * by})
                    if (now := loss(candidate)) < best * (1 - 1e-6):
                        machine, best, moved = candidate, now, True
    return machine
