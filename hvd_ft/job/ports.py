"""The range of TCP ports in which a job listens, for firewalls. Pure except for `listen`."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError

_RANGE = re.compile(r"([1-9][0-9]{0,4})-([1-9][0-9]{0,4})", re.ASCII)
_LAST = 65_535
_BACKLOG = 256


@dataclass(frozen=True)
class Ports:
    """The ports from `first` to `last`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Ports | None:
        """Reads a range such as `40000-40099`; None if it is none."""
        match = _RANGE.fullmatch(text)
        ports = cls(int(match[1]), int(match[2])) if match else None
        return ports if ports and ports.first <= ports.last <= _LAST else None

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


def read_ports(env: Mapping[str, str], name: str, default: Ports | None) -> Ports | None:
    """Reads a setting."""
    value = env.get(name)
    if not value:
        return default
    if ports := Ports.parse(value):
        return ports
    raise HvdFtError(f"{name}={value!r} is not allowed: give a range of ports, such as 40000-40099")


def listen(address: str, ports: Ports | None) -> socket.socket:
    """Listens at the first free port.

    Args:
        address: of this host; "": all of its addresses.
        ports: where; None: at any port that the system chooses.

    Raises:
        HvdFtError: none is free, or nobody can listen there.
    """
    for port in range(ports.first, ports.last + 1) if ports else (0,):
        try:
            return socket.create_server((address, port), backlog=_BACKLOG)
        except OSError as error:
            if ports is None or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                reason = os.strerror(error.errno) if error.errno else error
                raise HvdFtError(
                    f"cannot listen on {address or 'this host'} ({reason}): name another interface "
                    "by --network-interface (HOROVOD_FT_INTERFACE), or all"
                ) from error
    raise HvdFtError(
        f"no port of {ports} (HOROVOD_FT_PORTS, --ports) is free at {address or 'this host'}: give "
        "another range, or a longer one"
    )
