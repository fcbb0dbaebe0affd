"""The environment of a command on a node. Pure except for this Python's place."""

import sys
from collections.abc import Mapping

from hvd_ft.tools.cluster.cluster_dir import ClusterDir

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
# Values that the user has set take precedence.
_MPI = {
    # Do not start through the batch system whose allocation this machine may belong to.
    "I_MPI_HYDRA_BOOTSTRAP": "ssh",
    "FI_PROVIDER": "tcp",
    # The nodes share this machine's CPUs. Each node would pin its ranks to the same first CPUs, and
    # a rank that polls would take a CPU from the ranks it waits for.
    "I_MPI_PIN": "0",
    "I_MPI_THREAD_YIELD": "3",
}


def for_command(home: ClusterDir, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a command that is started on a node from outside.

    Args:
        home: The cluster.
        given: The environment outside the cluster.
    """
    kept = {name: value for name, value in given.items() if name.lower() not in _PROXIES}
    path = f"{home.bin}:{sys.prefix}/bin:{given.get('PATH') or _SYSTEM_PATH}"
    return {**_MPI, **kept, "PATH": path}


def for_ssh(home: ClusterDir, user: str, directory: str, shell: str) -> dict[str, str]:
    """Returns the environment of a command started through ssh: it inherits nothing.

    Args:
        home: The cluster.
        user: The calling user.
        directory: The user's home directory.
        shell: The shell that runs the command.
    """
    return {
        "HOME": directory,
        "LOGNAME": user,
        "PATH": f"{home.bin}:{sys.prefix}/bin:{_SYSTEM_PATH}",
        "SHELL": shell,
        "USER": user,
    }
