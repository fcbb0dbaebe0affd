"""The names by which Intel MPI and its launcher, Hydra, are told things, and say things; pure.

No other room writes such a name: it asks here what the user means by one, or for those that tell
Intel MPI something.
"""

import shlex
from collections.abc import Mapping

from hvd_ft.job.binding import BIND_TO
from hvd_ft.job.ports import Ports

_BOOTSTRAP = "I_MPI_HYDRA_BOOTSTRAP"
# The file with mpirun's hosts, and the slots of a host whose line has none.
HOST_FILE, SLOTS = "I_MPI_HYDRA_HOST_FILE", "I_MPI_PERHOST"
_PIN, _PIN_DOMAIN = "I_MPI_PIN", "I_MPI_PIN_DOMAIN"
# By our name of a setting, Intel MPI's own for the same.
SAME: Mapping[str, tuple[str, ...]] = {
    "HOROVOD_FT_BIND_TO": (_PIN, _PIN_DOMAIN),
    "FI_PROVIDER": ("I_MPI_OFI_PROVIDER",),
}
_SPLIT, _KIND = "I_MPI_THREAD_SPLIT", "I_MPI_LIBRARY_KIND"
_OFF = ("0", "off", "no", "disable")
_DOMAINS = {"core": "core", "numa": "numa", "socket": "socket", "sock": "socket"}
# What launchers give an MPI process. Others that begin with HYDRA, MPI or PMI are the user's, such
# as HYDRA_FULL_ERROR of hydra-core.
_LAUNCHER_PREFIXES = ("HYDRA_BSTRAP_", "I_MPI_", "PMIX_SERVER_")
_LAUNCHER_NAMES = frozenset(
    (
        *("HYDRA_IP_VERSION", "HYDRA_LAUNCH_TYPE", "HYDI_CONTROL_FD"),
        *("MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
        *("PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_ID", "PMI_PORT", "PMI_SPAWNED", "PMI_APPNUM"),
        *("PMIX_RANK", "PMIX_NAMESPACE"),
    )
)


def asked_binding(environ: Mapping[str, str]) -> str:
    """Returns how `hvdft run` binds ranks.

    Args:
        environ: of the user: `HOROVOD_FT_BIND_TO`, otherwise `I_MPI_PIN` if it turns binding on or
            off, otherwise `I_MPI_PIN_DOMAIN` if it is one of our words.
    """
    if said := environ.get("HOROVOD_FT_BIND_TO"):
        return said
    if switch := environ.get(_PIN):
        return "none" if switch.lower() in _OFF else BIND_TO[0]
    return _DOMAINS.get(environ.get(_PIN_DOMAIN, "").lower(), BIND_TO[0])


def asks_unsplit(environ: Mapping[str, str]) -> str:
    """Returns the user's variable and value that ask for no split threads; "" if none does."""
    value = environ.get(_SPLIT, "")
    return f"{_SPLIT}={value}" if value.lower() in _OFF else ""


def asks_debug(environ: Mapping[str, str]) -> str:
    """Returns the user's variable and value that ask for MPI's library with checks; "": none."""
    value = environ.get(_KIND, "")
    return f"{_KIND}={value}" if value.lower().startswith("debug") else ""


def bootstrap_of(environ: Mapping[str, str]) -> str:
    """Returns how Hydra starts processes on other hosts, such as `ssh` or `slurm`."""
    return environ.get(_BOOTSTRAP) or "ssh"


def bootstrap(name: str | None) -> dict[str, str]:
    """Returns the variable by which Hydra starts processes on other hosts so; None: none."""
    return {_BOOTSTRAP: name} if name else {}


def ssh_of(environ: Mapping[str, str]) -> str:
    """Returns the program that Hydra calls for ssh."""
    return environ.get(f"{_BOOTSTRAP}_EXEC") or "ssh"


def through_ssh(port: int | None, identity_file: str | None) -> dict[str, str]:
    """Returns the variables by which Hydra starts processes through ssh with these flags.

    Args:
        port: on the other hosts; None: ssh's own.
        identity_file: private key; None: ssh's own.
    """
    flags = [f"-p {port}"] if port else []
    flags += [f"-i {shlex.quote(identity_file)}"] if identity_file else []
    if not flags:
        return {}
    return {_BOOTSTRAP: "ssh", f"{_BOOTSTRAP}_EXEC_EXTRA_ARGS": " ".join(flags)}


def on_interface(interface: str | None) -> dict[str, str]:
    """Returns the variable by which Hydra listens on an interface; None: none."""
    return {"I_MPI_HYDRA_IFACE": interface} if interface else {}


def in_ports(ports: Ports) -> dict[str, str]:
    """Returns the variables by which mpirun, its proxies and MPI over TCP listen in these ports."""
    return {
        "I_MPI_PORT_RANGE": f"{ports.first}:{ports.last}",
        "FI_TCP_PORT_LOW_RANGE": str(ports.first),
        "FI_TCP_PORT_HIGH_RANGE": str(ports.last),
    }


def without_host_file(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which mpirun takes no other hosts than those it is called with."""
    return {name: value for name, value in environ.items() if name != HOST_FILE}


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without what launchers give an MPI process."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _LAUNCHER_NAMES and not name.startswith(_LAUNCHER_PREFIXES)
    }


def launch_rank(environ: Mapping[str, str]) -> int:
    """Returns the rank that Hydra sets before MPI is initialised; 0 without Hydra."""
    return int(environ.get("PMI_RANK", "0"))


def launch_rank_here(environ: Mapping[str, str]) -> int:
    """Returns the number among the host's ranks that Hydra sets; 0 without Hydra."""
    return int(environ.get("MPI_LOCALRANKID", "0"))


def launch_sizes(environ: Mapping[str, str]) -> tuple[int, int]:
    """Returns the number of ranks, of the job and of this host, likewise; 1 without Hydra."""
    size = int(environ.get("PMI_SIZE", "1"))
    return size, int(environ.get("MPI_LOCALNRANKS", size))
