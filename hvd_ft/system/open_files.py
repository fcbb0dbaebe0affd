"""How many descriptors this process may have."""

import contextlib
import resource


def allow_open_files(count: int) -> int:
    """Raises the limit of this process, if it is lower and may be raised.

    It is not raised further than that, as child processes inherit it, and select(2) takes no
    descriptor above 1,023.

    Args:
        count: how many descriptors there may be.

    Returns:
        The limit now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= count:
        return count if soft == unlimited else soft
    wanted = count if hard == unlimited else min(count, hard)
    with contextlib.suppress(OSError, ValueError):  # a container may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def locked_memory() -> int | None:
    """Returns the bytes that this process may lock in memory; None: any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft
