"""Whether hosts can be reached on which agents are to be started. Pure."""

from collections.abc import Collection, Mapping

from hvd_ft.launcher.machine.actions import Actions, Probe
from hvd_ft.launcher.machine.host_watch import GiveUp, HostWatch
from hvd_ft.launcher.machine.job_members import JobMembers


class HostReach:
    """The hosts that are probed before the next generation begins.

    Args:
        out: takes actions.
    """

    def __init__(self, out: Actions) -> None:
        self._out = out
        self._known: dict[str, str | None] = {}  # why a host cannot be reached; None: not yet

    def begin(self) -> None:
        """Forgets what was known."""
        self._known = {}

    def ask(self, hosts: Collection[str]) -> Mapping[str, str | None]:
        """Probes hosts that were not probed yet.

        Returns: Why each cannot be reached; "": it can; None: that is not known yet.
        """
        new = [host for host in hosts if host not in self._known]
        self._known |= dict.fromkeys(new)
        self._out.add(*map(Probe, new))
        return {host: self._known[host] for host in hosts}

    def look(self, hosts: HostWatch, members: JobMembers) -> GiveUp | bool:
        """Looks whether the hosts are there that have no line any more, or had none yet.

        One whose lines the network has ended may come back, until its lease is over.

        Args:
            hosts: the watch over all hosts.
            members: which hear of those that are gone, or are there after all.

        Returns: Whether all are there; or that one is given up.
        """
        gone = {hosts.name(host): host for host in hosts.gone()}
        cut = {hosts.name(host): host for host in hosts.cut_off()}
        found = self.ask([*gone, *cut, *members.unheard()])
        for name, why in found.items():
            if why == "" and (host := gone.get(name) or cut.get(name)):
                hosts.forget(host)  # it is alive; only the job's processes are gone
                members.found(name)
            elif why and name not in cut and not members.gone({name: why}):
                heard = name in gone
                text = f"{hosts.describe(gone[name]) if heard else members.describe(name)} is gone"
                return GiveUp(f"{text}: {why}", (name,))
        return all(why == "" for why in found.values())

    def probed(self, host: str, reason: str) -> None:
        """Notes the outcome of a probe."""
        if host in self._known:
            self._known[host] = reason

    def try_again(self) -> None:
        """Has hosts out of reach probed again when they are asked for."""
        self._known = {host: why for host, why in self._known.items() if not why}
