"""Slurm's compressed lists: host names (`n[01-03,7],m2`) and counts (`4(x2),3`). Pure."""

import itertools
import re
from collections.abc import Iterator

HOSTS_AT_MOST = 65_536
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_COUNT = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", re.ASCII)


def expand_hosts(text: str) -> list[str]:
    """Returns the host names of a list, in its order.

    Args:
        text: such as `n[01-03,7],m2`; a name may have several pairs of brackets.

    Raises:
        ValueError: the text is not such a list, or has more than 65,536 hosts.
    """
    hosts: list[str] = []
    for name in _split(text):
        parts = re.split(r"\[([^\[\]]*)\]", name)
        if any(set("[]") & set(part) for part in parts) or not name:
            raise ValueError(f"{name!r} is not a host")
        # Every second part was in brackets.
        choices = [
            list(_numbers(part)) if index % 2 else [part] for index, part in enumerate(parts)
        ]
        for combination in itertools.product(*choices):
            hosts.append("".join(combination))
            _check_size(len(hosts))
    return hosts


def expand_counts(text: str) -> list[int]:
    """Returns the numbers of a list such as `4(x2),3`: 4, 4, 3.

    Raises:
        ValueError: the text is not such a list, or has more than 65,536 numbers.
    """
    counts: list[int] = []
    for entry in text.split(","):
        match = _COUNT.fullmatch(entry)
        if match is None:
            raise ValueError(f"{entry!r} is not a count")
        times = int(match[2] or 1)
        _check_size(len(counts) + times)
        counts += [int(match[1])] * times
    return counts


def _split(text: str) -> list[str]:
    """Splits at the commas that are not in brackets."""
    return re.split(r",(?![^\[]*\])", text)


def _numbers(text: str) -> Iterator[str]:
    """Yields the numbers of `01-03,7`, as wide as they are written."""
    for entry in text.split(","):
        match = _RANGE.fullmatch(entry)
        if match is None:
            raise ValueError(f"{entry!r} is not a range of hosts")
        first, last = match[1], match[2] or match[1]
        _check_size(int(last) - int(first) + 1)
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}}"


def _check_size(size: int) -> None:
    if size > HOSTS_AT_MOST:
        raise ValueError(f"it has more than {HOSTS_AT_MOST} hosts")
