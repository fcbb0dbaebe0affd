"""What tests put in the place of their own process's output."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def standard_streams() -> Iterator[list[int]]:
    """Pipes in the place of this process's standard output and error; gives the reading ends."""
    kept = [os.dup(target) for target in (1, 2)]
    pipes = [os.pipe() for _ in kept]
    for (_, end), target in zip(pipes, (1, 2), strict=True):
        os.dup2(end, target)
        os.close(end)
    try:
        yield [reader for reader, _ in pipes]
    finally:
        for saved, target in zip(kept, (1, 2), strict=True):
            os.dup2(saved, target)
            os.close(saved)
