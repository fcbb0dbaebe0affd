"""The operations that can be measured, the sizes of a series, and the statistics of its times."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from hvd_ft.errors import HvdFtError

# By framework; gloo is torch.distributed's own.
BACKENDS = {"tensorflow": ("ft", "mpi"), "torch": ("ft", "mpi", "gloo")}
COPIES = "copies"  # no backend: only the copies that every backend has to make
DTYPES = ("float16", "float32", "float64", "int32", "int64")
OPS = ("sum", "average", "min", "max", "prod")


def sizes(first: int, last: int, factor: int, unit: int) -> list[int]:
    """Returns the sizes to measure, in bytes: `first`, each next one `factor` times as large.

    Args:
        first: bytes of the smallest size.
        last: bytes of the largest size, at most.
        factor: at least 2.
        unit: bytes that every size must be a multiple of: one element of each tensor.

    Raises:
        HvdFtError: there is no size in the range.
    """
    if last < first:
        raise HvdFtError(f"--max-bytes {last} is less than --min-bytes {first}; give more")
    found = []
    while first <= last:
        if first >= unit:
            found.append(first // unit * unit)
        first *= factor
    if not found:
        raise HvdFtError(f"--max-bytes {last} is less than one element of each tensor ({unit} "
                         "bytes); give more")  # fmt: skip
    return list(dict.fromkeys(found))


@dataclass
class Times:
    """The measurements of one backend at one size.

    Attributes:
        seconds: For every iteration, the mean over the ranks.
        wrong: Wrong elements in the results of all ranks.
    """

    seconds: list[float] = field(default_factory=list)
    wrong: int = 0

    def add_round(self, ranks: Sequence[Sequence[float]]) -> None:
        """Adds the seconds of a round's iterations, from each rank."""
        self.seconds += [statistics.fmean(times) for times in zip(*ranks, strict=True)]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)


@dataclass
class Row:
    """One size, all backends.

    Attributes:
        bytes: Total bytes of all tensors.
        count: Total elements of all tensors.
        ranks: Number of ranks.
        times: The measurements, by backend.
    """

    bytes: int
    count: int
    ranks: int
    times: dict[str, Times]

    def algbw(self, backend: str) -> float:
        """Returns GB/s: bytes by the median time."""
        return self.bytes / self.times[backend].median / 1e9

    def busbw(self, backend: str) -> float:
        """Returns GB/s as nccl-tests defines it: algbw · 2(n - 1)/n, comparable for any n."""
        return self.algbw(backend) * 2 * (self.ranks - 1) / self.ranks

    def ratio(self, backend: str, to: str) -> tuple[float, float]:
        """Returns by how much `backend` takes longer than `to`: by the medians, the minima."""
        own, others = self.times[backend], self.times[to]
        return own.median / others.median, own.best / others.best
