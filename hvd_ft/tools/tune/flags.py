"""What the flags of `hvdft probe` and `hvdft tune` have in common."""

import argparse
import math

from hvd_ft.job.ring_order import host_order
from hvd_ft.launcher.host_names import all_here
from hvd_ft.members.hosts import Host, parse_hosts
from hvd_ft.system.byte_size import parse_bytes
from hvd_ft.system.command_line import whole


def counts(text: str) -> list[int]:
    """Reads a list of whole numbers, each once."""
    return list(dict.fromkeys(map(whole(), text.split(","))))


def sizes(text: str) -> list[int]:
    """Reads a list of numbers of bytes, such as `8,64K,1M`, each once, in order."""
    try:
        return sorted({parse_bytes(each) for each in text.split(",")})
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> float:
    """Reads a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def hosts_of(text: str | None, size: int) -> tuple[Host, ...]:
    """Returns the hosts of -H, each once, as hvdft run orders them; none: all ranks are here.

    Raises:
        HvdFtError: The hosts cannot be read, or have too few slots.
    """
    hosts = host_order(parse_hosts(text, size), size)[0] if text is not None else ()
    return () if all_here(hosts) else hosts
