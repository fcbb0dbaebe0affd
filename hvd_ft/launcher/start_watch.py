"""Probes a job's hosts while its first agents are being started."""

from collections.abc import Collection, Mapping, Sequence

from hvd_ft.launcher.reach import Probes
from hvd_ft.members.hosts import Host

SECONDS = 10.0  # limit for agents to begin before their hosts are probed


class StartWatch:
    """The watch over one mpirun.

    Args:
        hosts: of the job; none if all ranks are on this host.
        environment: the whole one of mpirun.
        now: seconds on any steady clock.
        seconds: how long to wait for agents before their hosts are probed.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        environment: Mapping[str, str],
        now: float,
        seconds: float = SECONDS,
    ) -> None:
        self._hosts = hosts
        self._environment = environment
        self._try_at = now + seconds
        self._probes: Probes | None = None

    def look(self, now: float, here: Collection[int]) -> str:
        """Checks which agents have begun.

        Args:
            now: seconds on the same clock.
            here: the ranks whose agents have begun.

        Returns: Why the job cannot start, in one line; "" if no reason is known.
        """
        if self._probes is None and now >= self._try_at:
            missing = [host for host, ranks in _ranks(self._hosts) if not ranks & set(here)]
            self._probes = Probes(missing, self._environment)
        if self._probes is None:
            return ""
        self._probes.poll()
        return cannot_reach(self._hosts, self._probes.unreachable, self._environment)

    @property
    def unreachable(self) -> Mapping[str, str]:
        """The hosts that cannot be reached, as far as that is known, and why."""
        return self._probes.unreachable if self._probes else {}

    def find_out(self) -> Probes:
        """Probes all hosts now, as mpirun has failed."""
        self.close()
        self._probes = Probes([host for host, _ in _ranks(self._hosts)], self._environment)
        return self._probes

    def close(self) -> None:
        """Ends the probes."""
        if self._probes is not None:
            self._probes.close()


def cannot_reach(
    hosts: Sequence[Host], reasons: Mapping[str, str], environment: Mapping[str, str]
) -> str:
    """Returns a line that names the hosts that cannot be reached, and why; "" if all can.

    Args:
        hosts: of the job.
        reasons: why some of them cannot be reached.
        environment: the whole one of mpirun.
    """
    by = environment.get("I_MPI_HYDRA_BOOTSTRAP", "ssh")
    for name, ranks in _ranks(hosts):
        if name in reasons:
            numbers = ", ".join(map(str, sorted(ranks)))
            remedy = (
                f"see that 'ssh {name} true' works here and asks nothing"
                if by == "ssh"
                else f"see that the scheduler ({by}) has allocated this host and starts jobs there"
            )
            return (
                f"host {name} ({'ranks' if len(ranks) > 1 else 'rank'} {numbers}) cannot be "
                f"reached: {reasons[name]}; {remedy}"
            )
    return ""


def _ranks(hosts: Sequence[Host]) -> list[tuple[str, set[int]]]:
    """Returns the hosts' names, each with its ranks."""
    found: dict[str, set[int]] = {}
    first = 0
    for host in hosts:
        found.setdefault(host.name, set()).update(range(first, first + host.slots))
        first += host.slots
    return list(found.items())
