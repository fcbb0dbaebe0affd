"""What a training takes if a failure strikes it at regular intervals: arithmetic, no I/O."""

import math


def failures_until_done(work: float, every: float, cost: float) -> float:
    """Returns how many failures strike a training before it is complete.

    Args:
        work: Seconds that it takes without a failure, its start included.
        every: Seconds from its start to the first failure, and from each to the next.
        cost: Seconds that a failure takes: nothing new is done meanwhile.

    Returns:
        A whole number; infinity if it never ends.
    """
    if work <= every:
        return 0
    if cost >= every:
        return math.inf
    # After k failures it would be complete at work + k * cost, before the next one.
    return math.ceil((work - every) / (every - cost))


def total_seconds(work: float, every: float, cost: float) -> float:
    """Returns what the training takes in all; infinity if it never ends.

    The arguments are those of `failures_until_done`.
    """
    number = failures_until_done(work, every, cost)
    return math.inf if number == math.inf else work + number * cost
