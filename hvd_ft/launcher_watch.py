"""Whether the launcher lives, as a nursery sees it that keeps its worker for the next agent."""

import contextlib
import time

from hvd_ft.channel import Channel
from hvd_ft.lifeline import Holder, hold, say

_TRY_AGAIN_SECONDS = 1.0
_NEVER = float("inf")


class LauncherWatch:
    """A nursery's end of its life-line.

    Args:
        address: of the launcher.
        rank: of the nursery.
        generation: of its agent.
        adoption_seconds: so long the nursery waits for the next agent.

    Raises:
        OSError: the launcher cannot be reached.

    Attributes:
        generation: as above; the nursery sets it.
        adoption_seconds: as above.
        look_at: when `is_dead` has to be called, on time.monotonic()'s clock, even if there is
            nothing to read.
    """

    def __init__(self, address: str, rank: int, generation: int, adoption_seconds: float) -> None:
        self._address = address
        self._rank = rank
        self._orphaned = False
        self._line: Channel | None = hold(address)
        self.generation = generation
        self.adoption_seconds = adoption_seconds
        self.look_at = _NEVER
        self.say(orphaned=False)

    @property
    def line(self) -> Channel | None:
        """The line: readable when `is_dead` has something to find out; None while there is none."""
        return self._line

    def say(self, orphaned: bool, exit_code: int | None = None) -> None:
        """Tells the launcher whether there is an agent, and the job's exit code if it is over."""
        self._orphaned = orphaned
        if self._line is not None:
            say(self._line, Holder(self._rank, self.generation, orphaned, exit_code))

    def is_dead(self) -> bool:
        """Looks after the line, and for a new one if it has ended.

        Returns:
            Whether nobody listens there any more. A launcher that cannot be reached may live.
        """
        if self._line is not None:
            with contextlib.suppress(OSError, ValueError):
                if self._line.receive() is not None:
                    return False  # it has nothing to say
            self._line.close()
            self._line = None
        self.look_at = time.monotonic() + _TRY_AGAIN_SECONDS
        try:
            self._line = hold(self._address)
        except ConnectionRefusedError:
            return True
        except OSError:  # a network that is down for a moment
            return False
        self.look_at = _NEVER
        self.say(self._orphaned)
        return False
