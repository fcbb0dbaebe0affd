"""Looks whether a descriptor is ready, by poll(2): select(2) takes none above 1,023."""

import select

READABLE, WRITABLE = select.POLLIN, select.POLLOUT


def is_ready(descriptor: int, event: int = READABLE, seconds: float = 0.0) -> bool:
    """Returns whether a descriptor is ready, or its other end is gone.

    Args:
        descriptor: the descriptor.
        event: `READABLE` or `WRITABLE`.
        seconds: how long to wait for it.
    """
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(max(0.0, seconds) * 1000))
