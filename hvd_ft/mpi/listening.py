"""Where the launcher and mpirun listen: on loopback, or on the interface of a job on several hosts.

mpirun has no option for this: it listens on all interfaces, and so do its proxies and the agents,
which inherit its settings. So a library is preloaded into it (csrc/preload/listen.cc).
"""

import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import psutil

from hvd_ft.errors import HvdFtError
from hvd_ft.libraries import listen_library_path

LOOPBACK = "127.0.0.1"
ALL = "all"  # interfaces, as a value of HOROVOD_FT_INTERFACE
EVERYWHERE = ""  # as an address
_SOME_PORT = 9  # nothing is sent there


def local_address(interface: str | None) -> str:
    """Returns the address to listen on in a job on this host alone.

    This is the address of loopback. If a network namespace has none, or loopback is down, it is
    another address of this host.

    Args:
        interface: that the user has named, or `all`; MPI uses it here too.

    Returns:
        The address; `EVERYWHERE` if this host has none.

    Raises:
        HvdFtError: there is no such interface.
    """
    if interface is not None and interface != ALL:
        _address_of(interface)
    own = {
        str(entry.address)
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET
    }
    there = sorted(own, key=lambda address: (not _is_loopback(address), address))
    return next(filter(_can_listen, [LOOPBACK, *there]), EVERYWHERE)


def _can_listen(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as end:
        try:
            end.bind((address, 0))
        except OSError:
            return False
    return True


@cache
def listen_address(hosts: Sequence[str], interface: str | None) -> str:
    """Returns the address to listen on in a job on several hosts.

    This is the address of this host's name, to which Hydra's proxies on other hosts connect; or, if
    the name means loopback (as on Debian), the address from which the other hosts are reached.

    Args:
        hosts: names of the job's hosts; a tuple.
        interface: that the user has named, or `all`.

    Returns:
        The address; `EVERYWHERE` if there is none that all hosts can reach.

    Raises:
        HvdFtError: there is no such interface.
    """
    if interface == ALL:
        return EVERYWHERE
    if interface is not None:
        return _address_of(interface)
    named = [address for address in _addresses(socket.gethostname()) if not _is_loopback(address)]
    found = set(named or (address for host in hosts for address in _local_end(host)))
    ours = {
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not _is_loopback(entry.address)
    }
    return found.pop() if len(found) == 1 and found <= ours else EVERYWHERE


def listening_there(address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment in which mpirun listens on an address only.

    Args:
        address: as from `listen_address`.
        environment: all of mpirun's.
    """
    library = listen_library_path()
    if address == EVERYWHERE or re.search(r"[\s:]", library):  # which LD_PRELOAD cannot have
        return dict(environment)
    others = environment.get("LD_PRELOAD")
    more = {"HVDFT_PRELOAD": others} if others else {}
    preload = f"{library}:{others}" if others else library
    return {**environment, **more, "HVDFT_LISTEN": address, "LD_PRELOAD": preload}


def _address_of(interface: str) -> str:
    interfaces = psutil.net_if_addrs()
    for entry in interfaces.get(interface, ()):
        if entry.family == socket.AF_INET:
            return str(entry.address)
    raise HvdFtError(
        f"--network-interface {interface} (HOROVOD_FT_INTERFACE): this host has no such interface "
        "with an IPv4 address; "
        f"give one of {', '.join(sorted(interfaces))}, or {ALL}"
    )


def _addresses(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]) for *_, address in found]


def _local_end(host: str) -> Iterator[str]:
    """Yields the address of this host from which another one is reached."""
    for address in _addresses(host)[:1]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            try:
                end.connect((address, _SOME_PORT))
            except OSError:
                continue
            local = str(end.getsockname()[0])
        if not _is_loopback(local) and local != address:  # not this host itself
            yield local


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
