"""What the status page shows of links, and whether it may kill a rank. Pure."""

from __future__ import annotations

from hvd_ft.job.lifeline_messages import KillWorker
from hvd_ft.job.page_messages import Kill, LinkStatus
from hvd_ft.launcher.machine.actions import Actions, AnswerPage
from hvd_ft.launcher.machine.host_watch import HostWatch
from hvd_ft.launcher.machine.shim_roll import ShimRoll


class PageRule:
    """The rule.

    Args:
        roll: of the job's shims.
        hosts: the watch over hosts and links.
        out: takes actions.
    """

    def __init__(self, roll: ShimRoll, hosts: HostWatch, out: Actions) -> None:
        self._roll = roll
        self._hosts = hosts
        self._out = out

    def links(self, now: float) -> list[LinkStatus]:
        """Returns the state of the links between nodes.

        Args:
            now: seconds on any steady clock.
        """
        return self._hosts.links(now)

    def kill(self, kill: Kill, *, over: bool) -> None:
        """Has a rank's worker killed, on whatever host it is.

        Args:
            kill: the request.
            over: whether the job has ended, or is being ended.
        """
        problem = self._why_not(kill.rank, over)
        if not problem:
            self._out.say(f"rank {kill.rank} is killed, as somebody has asked on the status page")
            self._roll.tell_rank(kill.rank, KillWorker())
        self._out.add(AnswerPage(kill.number, problem))

    def _why_not(self, rank: int, over: bool) -> str:
        if over:
            return "the job is ending"
        shim = next((each for each in self._roll.shims if each.rank == rank), None)
        if shim is None:
            return f"the launcher has no connection to rank {rank}: try again when it has begun"
        if self._hosts.is_silent(shim.host):
            return f"{self._hosts.describe(shim.host)} does not answer: try again when it does"
        return ""
