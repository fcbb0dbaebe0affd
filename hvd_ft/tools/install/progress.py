"""Progress output of a long step."""

import sys
import time


class Progress:
    """Prints a line per stage and, on a terminal, rewrites a last line with the details.

    A stage's line starts with the seconds since the beginning. Where the output is not a
    terminal, a detail is printed when ten seconds have passed without a line.
    """

    _QUIET_SECONDS = 10.0

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last_line = self._start
        self._live = sys.stdout.isatty()

    def stage(self, text: str) -> None:
        """Prints a line that stays."""
        self._print(text, clear="\r\x1b[K" if self._live else "", end="\n")

    def detail(self, text: str) -> None:
        """Shows a detail of the stage."""
        if self._live:
            self._print(text[:60], clear="\r\x1b[K", end="")
        elif time.monotonic() - self._last_line > self._QUIET_SECONDS:
            self._print(text, clear="", end="\n")

    def _print(self, text: str, clear: str, end: str) -> None:
        self._last_line = time.monotonic()
        sys.stdout.write(f"{clear}{self._last_line - self._start:5.0f} s  {text}{end}")
        sys.stdout.flush()
