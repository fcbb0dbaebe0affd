"""Checks that a job's host names are known here, and finds this host among them."""

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import LOCAL_NAMES, Host
from hvd_ft.mpi.variables import bootstrap_of, ssh_of

_AT_ONCE = 32
_SSH_SECONDS = 10.0


def check_known(hosts: Sequence[Host], environ: Mapping[str, str]) -> None:
    """Checks that host names resolve, if this host is the one that resolves them.

    Args:
        hosts: the hosts of the job.
        environ: the environment of mpirun. This host resolves the names only if mpirun starts
            processes by ssh, which is its default.

    Raises:
        HvdFtError: a name is unknown.
    """
    if bootstrap_of(environ) not in ("ssh", "rsh"):
        return
    names = sorted({host.name for host in hosts} - {*LOCAL_NAMES, socket.gethostname()})
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = dict(zip(names, pool.map(_why_unknown, names), strict=True))
    ssh = ssh_of(environ)
    unknown = [name for name in names if answers[name] and not _ssh_knows(ssh, name)]
    if unknown:
        some = f"host {unknown[0]}" if len(unknown) == 1 else f"hosts {', '.join(unknown)}"
        raise HvdFtError(
            f"-H names the {some}, not known here ({answers[unknown[0]]}): correct the name, or "
            "enter it in /etc/hosts or the DNS"
        )


def all_here(hosts: Sequence[Host]) -> bool:
    """Returns whether all hosts are this one, by its usual names; true if there are none.

    In that case the ranks need neither a machine file nor a network.
    """
    return {host.name for host in hosts} <= {*LOCAL_NAMES, socket.gethostname()}


def is_this_host(name: str) -> bool:
    """Returns whether a name means this host, so that a process here can listen at its address."""
    if name in (*LOCAL_NAMES, socket.gethostname()):
        return True
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as listener:
            try:
                listener.bind(address)
                return True
            except OSError:
                continue
    return False


def _why_unknown(name: str) -> str:
    """Returns the reason why a name does not resolve; "" if it resolves."""
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _ssh_knows(ssh: str, name: str) -> bool:
    """Returns whether the configuration of ssh has another address or host for a name."""
    program = shutil.which(ssh)
    if program is None:
        return False
    if os.path.basename(program) != "ssh":
        return True  # its configuration is unknown
    try:
        done = subprocess.run(
            [program, "-G", name],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_SSH_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    said = dict(line.partition(" ")[::2] for line in done.stdout.lower().splitlines())
    if done.returncode:
        return False
    if any(said.get(way, "none") != "none" for way in ("proxyjump", "proxycommand")):
        return True
    return said.get("hostname", name.lower()) != name.lower() and not _why_unknown(said["hostname"])
