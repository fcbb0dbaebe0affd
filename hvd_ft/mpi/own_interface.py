"""Checks, before MPI starts, that this host has the interface that MPI is to use.

Apart from fabric.py, which `hvdft check` needs where packages are missing.
"""

import os
import socket
from collections.abc import Mapping

import psutil

from hvd_ft.errors import HostError
from hvd_ft.mpi.fabric import fast_devices, missing_interface


def check_interface(environ: Mapping[str, str]) -> None:
    """Checks the interface that `--network-interface` has named, or the user's variable.

    The launcher has found the interface on its own host; on other hosts its name may differ.

    Args:
        environ: of this process.

    Raises:
        HostError: this host has no such interface.
    """
    interfaces = sorted(
        name
        for name, entries in psutil.net_if_addrs().items()
        if any(entry.family in (socket.AF_INET, socket.AF_INET6) for entry in entries)
    )
    if name := missing_interface(environ, fast_devices(), interfaces):
        raise HostError(
            f"host {os.uname().nodename} has no interface {name} (--network-interface, or "
            f"FI_TCP_IFACE), only {', '.join(interfaces)}: give a name that all hosts have, or "
            "leave it out, and MPI chooses on each host"
        )
