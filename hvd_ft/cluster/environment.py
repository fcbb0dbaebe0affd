"""The environment of a command on a node. Pure but for where this Python is."""

import sys
from collections.abc import Mapping

from hvd_ft.cluster.cluster_dir import ClusterDir

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
# Whatever the user has set of these wins.
_MPI = {
    # Not through the batch system in whose allocation this machine may be.
    "I_MPI_HYDRA_BOOTSTRAP": "ssh",
    "FI_PROVIDER": "tcp",
    # The nodes share this machine's CPUs. Each would pin its ranks to the same first ones, and a
    # rank that polls would take a CPU from those it waits for.
    "I_MPI_PIN": "0",
    "I_MPI_THREAD_YIELD": "3",
}


def for_command(home: ClusterDir, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a command that somebody outside runs on a node.

    Args:
        home: The cluster.
        given: The environment outside.
    """
    kept = {name: value for name, value in given.items() if name.lower() not in _PROXIES}
    path = f"{home.bin}:{sys.prefix}/bin:{given.get('PATH') or _SYSTEM_PATH}"
    return {**_MPI, **kept, "PATH": path}


def for_ssh(home: ClusterDir, user: str, directory: str, shell: str) -> dict[str, str]:
    """Returns the environment that a command gets through ssh: nothing of the caller's.

    Args:
        home: The cluster.
        user: Who calls.
        directory: The user's home directory.
        shell: The user's shell.
    """
    return {
        "HOME": directory,
        "LOGNAME": user,
        "PATH": f"{home.bin}:{sys.prefix}/bin:{_SYSTEM_PATH}",
        "SHELL": shell,
        "USER": user,
    }
