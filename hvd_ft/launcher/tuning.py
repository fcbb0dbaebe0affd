"""Finds the settings of `hvdft tune` that fit a job, and describes them."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hvd_ft import __version__
from hvd_ft.errors import HvdFtError
from hvd_ft.launcher import tuning_file
from hvd_ft.launcher.host_names import all_here, is_this_host
from hvd_ft.launcher.tuning_file import OFF, Place, is_set
from hvd_ft.members.hosts import Host
from hvd_ft.mpi.fabric import choose_provider, fast_devices
from hvd_ft.system.distributions import version_of

VARIABLE = "HOROVOD_FT_TUNING_FILE"


@dataclass(frozen=True)
class Found:
    """The tuned settings of a job.

    Attributes:
        settings: The settings, by environment variable.
        line: A line for the user; "" if there is nothing to report.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    line: str = ""


def place_here(hosts: Sequence[Host], size: int, environ: Mapping[str, str]) -> Place:
    """Returns the place of a job on some hosts, as it stands in a tuning file.

    Args:
        hosts: The hosts of the job; none if all ranks are on this host.
        size: Number of ranks.
        environ: The user's environment.
    """
    if here := all_here(hosts):
        hosts = (Host(socket.gethostname(), size),)
    provider = choose_provider(environ, fast_devices()).name or "MPI's own choice"
    return Place(
        [str(host) for host in hosts],
        size,
        {host.name: os.cpu_count() or 1 for host in hosts if here or is_this_host(host.name)},
        "shared memory" if here else provider,
        {"hvd_ft": __version__, "Intel MPI": version_of("impi-rt") or "of I_MPI_ROOT"},
    )


def find(given: str | None, hosts: Sequence[Host], size: int, environ: Mapping[str, str]) -> Found:
    """Finds the tuned settings of a job.

    Args:
        given: The file of --tuning, or `off`; None: the file that the environment names, or the
            one in the default place if it exists.
        hosts: The hosts of the job; none if all ranks are on this host.
        size: Number of ranks.
        environ: The user's environment, whose settings win.

    Raises:
        HvdFtError: The file that the user names cannot be used.
    """
    named = given or environ.get(VARIABLE)
    if named == OFF:
        return Found()
    here = place_here(hosts, size, environ)
    path = named or tuning_file.default_path(here.hosts, environ)
    if not named and not os.path.exists(path):
        return Found()
    try:
        tuning = tuning_file.read(path)
    except HvdFtError as error:
        if named:
            raise
        return Found(line=f"{error}; continuing without it")
    if why := tuning.place.why_not(here):
        return Found(line=f"the tuning file {path} does not fit ({why}); continuing without it")
    theirs = [name for name in tuning.settings if is_set(name, environ)]
    ours = {name: value for name, value in tuning.settings.items() if name not in theirs}
    words = ", ".join(f"{name}={value}" for name, value in ours.items()) or "nothing"
    stay = f"; {', '.join(theirs)}: as you have set it" if theirs else ""
    return Found(
        ours, f"tuning: {path} sets {words} ({describe(tuning.change)}, {tuning.made}){stay}"
    )


def describe(change: float) -> str:
    """Describes a change of the time in words."""
    if abs(change) < 0.005:
        return "as fast as the defaults"
    return f"{abs(change):.0%} {'less' if change < 0 else 'more'} time than with the defaults"
