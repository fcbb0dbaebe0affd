"""What the command lines of the rooms have in common."""

import argparse
import re
from collections.abc import Callable
from typing import Any

# Makes a command's parser of its place, name, help and example.
AddCommand = Callable[[Any, str, str, str], argparse.ArgumentParser]
_MOST = 10**6


def whole(least: int = 1, of: str = "") -> Callable[[str], int]:
    """Returns what reads a flag's whole number.

    Args:
        least: That it may be; at most a million.
        of: What it counts, such as `ranks`, for the error.
    """

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= _MOST:
            what = f"a number of {of}" if of else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}, {least} or more")
        return int(text)

    return read


def duration(text: str) -> float:
    """Reads a flag's time, such as `90`, `90s`, `10m` or `2h`; returns seconds, above 0."""
    match = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)([smh]?)", text, re.ASCII)
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    if not 0 < seconds <= 10**7:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, such as 90, 90s, 10m or 2h")
    return seconds
