"""Where the memory of the job's files lies, seen from Python (``include/hvd_ft_numa.h``)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hvd_ft.errors import HvdFtError
from hvd_ft.native import abi
from hvd_ft.native.abi import ffi


@contextmanager
def files_on(nodes: Sequence[int]) -> Iterator[str]:
    """Places the memory of job files that this thread makes in this context on these nodes.

    Args:
        nodes: numbers of NUMA nodes; none: wherever it is used first.

    Yields:
        Why that cannot be done, in one line; the files are made nevertheless. "" if it can.
    """
    try:
        place_files(nodes)
        problem = ""
    except HvdFtError as error:
        problem = str(error)
    try:
        yield problem
    finally:
        place_files(())


def place_files(nodes: Sequence[int]) -> None:
    """As the context, until it is called again.

    Raises:
        HvdFtError: The system does not allow it; files have no place then.
    """
    abi.checked(abi.library().hvdft_place_files(ffi.new("int[]", list(nodes)), len(nodes)))
