"""Which hosts keep a job's agents from beginning. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hvd_ft.members.hosts import Host

SECONDS = 10.0  # limit for agents to begin before their hosts are probed


class StartWatch:
    """The watch over the start of one generation of agents.

    Args:
        hosts: of the job; none if all ranks are on this host.
        now: seconds on any steady clock.
        seconds: how long to wait for agents before their hosts are probed.

    Attributes:
        unreachable: the hosts that cannot be reached, as far as that is known, and why.
    """

    def __init__(self, hosts: Sequence[Host], now: float, seconds: float = SECONDS) -> None:
        self._hosts = hosts
        self._try_at = now + seconds
        self._here: set[int] = set()  # ranks whose agents have begun, wherever they are now
        self._waiting: set[str] | None = None  # for the outcomes of probes; None: none yet
        self.unreachable: dict[str, str] = {}

    def look(self, now: float, here: Collection[int]) -> list[str]:
        """Returns the hosts that are to be probed now.

        Args:
            now: seconds on the same clock.
            here: the ranks whose agents have begun.
        """
        self._here.update(here)
        begun = [host for host, ranks in _ranks(self._hosts) if ranks & self._here]
        for host in begun:
            self.unreachable.pop(host, None)
        if self._waiting is not None or now < self._try_at:
            return []
        return self._probe([host for host, _ in _ranks(self._hosts) if host not in begun])

    def find_out(self) -> list[str]:
        """Returns all hosts: they are to be probed, as mpirun has failed."""
        self.unreachable = {}
        return self._probe([host for host, _ in _ranks(self._hosts)])

    def probed(self, host: str, reason: str) -> None:
        """Notes the outcome of a probe."""
        if self._waiting and host in self._waiting:
            self._waiting.remove(host)
            if reason:
                self.unreachable[host] = reason

    @property
    def knows(self) -> bool:
        """Whether the outcomes of all probes are known."""
        return not self._waiting

    def why(self, bootstrap: str) -> str:
        """Returns why the job cannot start, in one line; "" if no reason is known.

        Args:
            bootstrap: how Hydra starts processes on other hosts.
        """
        return cannot_reach(self._hosts, self.unreachable, bootstrap)

    def _probe(self, hosts: list[str]) -> list[str]:
        self._waiting = set(hosts)
        return hosts


def cannot_reach(hosts: Sequence[Host], reasons: Mapping[str, str], bootstrap: str) -> str:
    """Returns a line that names the hosts that cannot be reached, and why; "" if all can.

    Args:
        hosts: of the job.
        reasons: why some of them cannot be reached.
        bootstrap: how Hydra starts processes on other hosts.
    """
    for name, ranks in _ranks(hosts):
        if name in reasons:
            numbers = ", ".join(map(str, sorted(ranks)))
            remedy = (
                f"see that 'ssh {name} true' works here and asks nothing"
                if bootstrap == "ssh"
                else f"see that the scheduler ({bootstrap}) has allocated this host and starts "
                "jobs there"
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
