"""Who is at the other ends of the life-lines, and what they have said. Pure."""

from __future__ import annotations

from collections.abc import Collection

from hvd_ft.job.lifeline_messages import FromLauncher, ShimStatus
from hvd_ft.launcher.machine.actions import Actions, EndLine, Send


class ShimRoll:
    """The shims of one job.

    Args:
        out: takes what is sent to them, and which lines are ended.

    Attributes:
        exit_code: of the job, once a shim has reported it.
        hosts: the ranks of each host that has ever had a line.
        hung_up: the hosts that ended their last line themselves: no process of the job is left
            there.
        interrupted: the ranks whose workers have received SIGINT.
    """

    def __init__(self, out: Actions) -> None:
        self._out = out
        self._lines: dict[int, ShimStatus] = {}
        self.exit_code: int | None = None
        self.hosts: dict[str, set[int]] = {}
        self.hung_up: set[str] = set()
        self.interrupted: set[int] = set()

    @property
    def shims(self) -> list[ShimStatus]:
        """The latest status of each shim that has a line."""
        return list(self._lines.values())

    @property
    def ranks(self) -> set[int]:
        """The ranks whose agents have begun."""
        return {shim.rank for shim in self._lines.values()}

    def shim(self, line: int) -> ShimStatus | None:
        """Returns the status of the shim at the end of a line; None if it has none."""
        return self._lines.get(line)

    def note(self, line: int, shim: ShimStatus) -> None:
        """Notes what a shim says of itself."""
        # A line broken by the network may still look intact at this end.
        for other, known in list(self._lines.items()):
            if other != line and known.rank == shim.rank:
                self._end(other)
        self._lines[line] = shim
        self.hung_up.discard(shim.host)
        self.hosts.setdefault(shim.host, set()).add(shim.rank)
        if shim.exit_code is not None:
            # All report the same code, except that rank 0's agent may add that the report was not
            # written.
            self.exit_code = self.exit_code or shim.exit_code

    def turned_away(self, line: int) -> None:
        """Notes that the shim of a line is none of the job's any more."""
        self._lines.pop(line, None)

    def ended(self, line: int, *, hung_up: bool) -> None:
        """Notes that a line has ended.

        Args:
            line: its number.
            hung_up: whether the shim has ended it; else the network, or an error.
        """
        shim = self._lines.pop(line, None)
        if shim and not any(other.host == shim.host for other in self._lines.values()):
            (self.hung_up.add if hung_up else self.hung_up.discard)(shim.host)

    def tell(self, message: FromLauncher) -> None:
        """Sends a message to all shims."""
        self._out.add(*(Send(line, message) for line in self._lines))

    def tell_rank_0(self, message: FromLauncher) -> None:
        """Sends a message to the shim of rank 0."""
        self.tell_rank(0, message)

    def tell_rank(self, rank: int, message: FromLauncher) -> None:
        """Sends a message to the shim of a rank."""
        self._out.add(*(Send(line, message) for line, s in self._lines.items() if s.rank == rank))

    def ask(self, message: FromLauncher, silent: Collection[str], *, each: bool) -> None:
        """Asks every host, through its first rank with a line; a silent one through all ranks.

        Args:
            message: the question.
            silent: hosts that have not answered for some time.
            each: whether every shim is asked, as each has a lease of its own.
        """
        first: dict[str, tuple[int, int]] = {}
        for line, shim in self._lines.items():
            if each or shim.host in silent:
                self._out.add(Send(line, message))
            else:
                entry = (shim.rank, line)
                first[shim.host] = min(first.get(shim.host, entry), entry)
        self._out.add(*(Send(line, message) for _, line in first.values()))

    def forget(self, hosts: Collection[str]) -> None:
        """Ends the lines of hosts that have lost their places."""
        for line, shim in list(self._lines.items()):
            if shim.host in hosts:
                self._end(line)
        for host in hosts:
            self.hosts.pop(host, None)
            self.hung_up.discard(host)

    def release(self, ranks: Collection[int]) -> list[str]:
        """Ends the lines of ranks that get another host.

        Returns:
            The hosts that have no others.
        """
        for line, shim in list(self._lines.items()):
            if shim.rank in ranks:
                self._end(line)
        for there in self.hosts.values():
            there.difference_update(ranks)
        empty = [host for host, there in self.hosts.items() if not there]
        self.forget(empty)
        return empty

    def late_agents(self, generation: int) -> bool:
        """Returns whether a shim is still waiting for its agent of this generation.

        Hydra does not see the death of one that has not yet begun with MPI.
        """
        return any(shim.generation < generation for shim in self._lines.values())

    def has_rank_0(self, generation: int) -> bool:
        """Returns whether there is somebody to write the report."""
        return any(
            shim.rank == 0 and shim.generation == generation and not shim.orphaned
            for shim in self._lines.values()
        )

    def _end(self, line: int) -> None:
        self.ended(line, hung_up=False)
        self._out.add(EndLine(line))
