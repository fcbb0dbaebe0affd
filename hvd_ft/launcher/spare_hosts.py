"""Checks the hosts of `--spare-hosts`."""

from collections.abc import Mapping, Sequence

from hvd_ft.errors import HvdFtError
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.host_names import check_known
from hvd_ft.members.hosts import Host, parse_hosts
from hvd_ft.members.membership import Membership
from hvd_ft.system.say import say

MINIMUM_FENCE_SECONDS = 3.0


def parse_spare_hosts(
    text: str, hosts: Sequence[Host], size: int, environ: Mapping[str, str]
) -> tuple[Host, ...]:
    """Reads and checks the spare hosts of a job.

    A spare host that cannot be reached is not an error: it may be up when it is needed.

    Args:
        text: The value of the flag, such as `n3:4,n4:2`.
        hosts: The hosts of `-H`.
        size: The job's number of ranks.
        environ: The environment of mpirun.

    Returns:
        The spare hosts, in the order in which they are taken.

    Raises:
        HvdFtError: The hosts cannot help this job.
    """
    spares = parse_hosts(text, 0, "--spare-hosts")
    if not hosts:
        raise HvdFtError("--spare-hosts replaces hosts of -H, and there is no -H; give both")
    names = [host.name for host in (*hosts, *spares)]
    for host in spares:
        if names.count(host.name) > 1:
            raise HvdFtError(
                f"--spare-hosts {text}: {host.name} is named twice, here or in -H; name each host "
                "once"
            )
    for host in hosts:
        if names.count(host.name) > 1:
            raise HvdFtError(f"-H names {host.name} twice; name each host once to replace it")
    needed = [place.size for place in Membership.first(hosts, size).places]
    for host in spares:
        if host.slots < min(needed):
            raise HvdFtError(
                f"--spare-hosts {text}: {host.name} has {host.slots} slots, and every host of -H "
                f"has {min(needed)} ranks or more, which stay together; give {host.name} more slots"
            )
    _check_known(spares, environ)
    for place in Membership.first(hosts, size).places:
        if all(host.slots < place.size for host in spares):
            say(
                f"no spare host has slots for the {place.size} ranks of {place.host}: if it is "
                "lost it is waited for"
            )
    return spares


def _check_known(spares: Sequence[Host], environ: Mapping[str, str]) -> None:
    for host in spares:
        try:
            check_known([host], environ)
        except HvdFtError as error:
            say(str(error).replace("-H names", "--spare-hosts names"))


def check_fence(settings: Settings) -> None:
    """Checks the time after which a silent host is replaced or left out.

    Raises:
        HvdFtError: The time is too short, or longer than the wait for a lost host.
    """
    fence, limit = settings.fence_seconds, settings.host_timeout_seconds
    if fence < MINIMUM_FENCE_SECONDS:
        raise HvdFtError(
            f"HOROVOD_FT_FENCE_SECONDS is {fence:g}: hosts are asked once a second, and act for "
            "two thirds of this time without hearing of the launcher, so give "
            f"{MINIMUM_FENCE_SECONDS:g} or more"
        )
    if fence >= limit:
        raise HvdFtError(
            f"HOROVOD_FT_FENCE_SECONDS is {fence:g} and HOROVOD_FT_HOST_TIMEOUT_SECONDS "
            f"{limit:g}: a lost host is replaced first and given up later, so give the first one "
            "less"
        )
