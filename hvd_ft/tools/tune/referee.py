"""IMB-MT, which comes with Intel MPI, as the probe's referee: BiBandMT does what the probe does.

There are three differences: threads without endpoints of their own still have a communicator each,
all messages of a window share a buffer, and one process acknowledges each window. Pure.
"""

import re

from hvd_ft.errors import HvdFtError

_BENCHMARK = "BiBandMT"
_WARM_UP, _LEAST, _MOST = 2, 2, 100_000  # windows
# Bytes of all threads, repetitions, microseconds, MB/s, messages/s.
_ROW = re.compile(r"^\s*\d+\s+\d+\s+([\d.]+)\s+[\d.]+\s+(\d+)\s*$", re.MULTILINE)
_COARSE_PER_SECOND = 1000  # of slower ones the time is the better known: the rate is a whole number


def command(size: int, window: int, rate: float, seconds: float) -> list[str]:
    """Returns the command line that measures one size for about the given time.

    It measures only one size, because sizes that share a run also share the number of repetitions.

    Args:
        size: Bytes of a message.
        window: Messages that a thread has under way at a time, in each direction.
        rate: The messages per second to expect.
        seconds: The intended duration.
    """
    windows = min(max(round(seconds * rate / (2 * window)), _LEAST), _MOST)
    flags = {
        "-thread_level": "multiple",
        "-datatype": "char",
        "-count": str(size),
        "-window_size": str(window),
        "-repeat": str(windows),
        "-warmup": str(_WARM_UP),
    }
    return ["IMB-MT", _BENCHMARK, *(word for pair in flags.items() for word in pair)]


def parse(output: str, threads: int) -> float:
    """Returns the messages per second of a run, both directions together.

    Args:
        output: The output of IMB-MT.
        threads: The number of threads of each process.

    Raises:
        HvdFtError: The output has no table of BiBandMT.
    """
    row = _ROW.search(output)
    if not row or _BENCHMARK not in output:
        raise HvdFtError(
            f"IMB-MT printed no table of {_BENCHMARK}: run it by hand, or leave --referee out"
        )
    rate = float(row[2])
    return rate if rate >= _COARSE_PER_SECOND else threads * 1e6 / float(row[1])
