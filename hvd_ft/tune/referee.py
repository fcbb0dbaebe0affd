"""IMB-MT, which comes with Intel MPI, as the probe's referee: BiBandMT does what the probe does.

It differs in that threads without endpoints of their own still have a communicator each, all
messages of a window share a buffer, and one process acknowledges each window. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError

_BENCHMARK = "BiBandMT"
_WARM_UP, _LEAST, _MOST = 2, 2, 100_000  # windows
# Bytes of all threads, repetitions, microseconds, MB/s, messages/s.
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+([\d.]+)\s+[\d.]+\s+(\d+)\s*$", re.MULTILINE)
_COARSE_PER_SECOND = 1000  # of slower ones the time is the better known: the rate is a whole number


@dataclass(frozen=True)
class Run:
    """One run of it, whose sizes have window and repetitions in common.

    Attributes:
        sizes: Bytes of a message.
        window: Messages that a thread has under way at a time, in each direction.
        repeat: Windows.
    """

    sizes: Sequence[int]
    window: int
    repeat: int


def runs(windows: Mapping[int, int], rates: Mapping[int, float], seconds: float) -> list[Run]:
    """Returns the runs that measure all sizes, each size for about so many seconds.

    Args:
        windows: The window of each size.
        rates: The messages per second to expect of each size.
        seconds: Of each measurement.
    """
    made = []
    for window in sorted(set(windows.values()), reverse=True):
        sizes = sorted(size for size in windows if windows[size] == window)
        slowest = min(rates[size] for size in sizes)
        repeat = round(seconds * slowest / (2 * window))
        made.append(Run(sizes, window, min(max(repeat, _LEAST), _MOST)))
    return made


def command(run: Run) -> list[str]:
    """Returns the command line of one run."""
    flags = {
        "-thread_level": "multiple",
        "-datatype": "char",
        "-count": ",".join(map(str, run.sizes)),
        "-window_size": str(run.window),
        "-repeat": str(run.repeat),
        "-warmup": str(_WARM_UP),
    }
    return ["IMB-MT", _BENCHMARK, *(word for pair in flags.items() for word in pair)]


def parse(output: str, threads: int) -> dict[int, float]:
    """Returns the messages per second of each size, both directions together.

    Args:
        output: What IMB-MT has printed.
        threads: How many each process had.

    Raises:
        HvdFtError: There is no table of BiBandMT in it.
    """
    rows = {}
    for match in _ROW.finditer(output):
        rate = float(match[3])
        if rate < _COARSE_PER_SECOND:
            rate = threads * 1e6 / float(match[2])
        rows[int(match[1]) // threads] = rate
    if not rows or _BENCHMARK not in output:
        raise HvdFtError(
            f"IMB-MT printed no table of {_BENCHMARK}: run it by hand, or leave --referee out"
        )
    return rows
