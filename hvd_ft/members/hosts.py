"""Hosts and their slots: horovodrun's `-H` flag, placements, and mpirun's machine file. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError

LOCAL_NAMES = ("localhost", "127.0.0.1")
_COUNT = re.compile(r"0*[1-9][0-9]{0,5}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Host:
    """A host and its number of slots for ranks."""

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def parse_hosts(text: str, size: int, flag: str = "-H") -> tuple[Host, ...]:
    """Reads a list of hosts, such as `n0:4,n1:2,n2:2`; without a number a host has one slot.

    Args:
        text: The list.
        size: The job's number of ranks, all of which need slots.
        flag: The flag that contains the list, for errors.

    Returns:
        The hosts in their order, which is that of the ranks.

    Raises:
        HvdFtError: It is not such a list, or has too few slots.
    """
    remedy = f"give hosts and slots, such as {flag} localhost:{size}"
    hosts = []
    for entry in text.split(","):
        name, colon, count = entry.partition(":")
        if not _NAME.fullmatch(name):
            raise HvdFtError(f"{flag} {text}: {name!r} is not a host name; {remedy}")
        if colon and not _COUNT.fullmatch(count):
            raise HvdFtError(f"{flag} {text}: {count!r} is not a number of slots; {remedy}")
        hosts.append(Host(name, int(count) if colon else 1))
    slots = sum(host.slots for host in hosts)
    if slots < size:
        raise HvdFtError(f"{flag} {text} has {slots} slots for {size} ranks; {remedy}")
    return tuple(hosts)


def parse_placement(text: str) -> tuple[Host, ...]:
    """Reads how many ranks each node of a cluster has: `4-3-1` is n0:4, n1:3, n2:1.

    Args:
        text: The placement.

    Raises:
        HvdFtError: It is not a placement.
    """
    counts = text.split("-")
    if not all(map(_COUNT.fullmatch, counts)):
        raise HvdFtError(f"{text!r} is not a placement; give the ranks of each node, such as 4-3-1")
    return tuple(Host(f"n{node}", int(count)) for node, count in enumerate(counts))


def host_list(hosts: Sequence[Host]) -> str:
    """Returns the hosts in the form of `-H`."""
    return ",".join(map(str, hosts))


def machine_file(hosts: Sequence[Host]) -> str:
    """Returns the text of mpirun's machine file: the hosts, each with its slots."""
    return "".join(f"{host}\n" for host in hosts)
