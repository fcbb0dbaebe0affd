"""Fills the arenas of nodes that have joined the job afresh from those of the others."""

from collections.abc import Sequence

from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.errors import HvdFtError


def rejoin(rendezvous: Rendezvous, context: JobContext, fresh: Sequence[int]) -> None:
    """Fills the arenas of fresh nodes. Collective, before any leader or engine starts.

    Args:
        rendezvous: of all agents.
        context: this agent's place in the job.
        fresh: the nodes whose arenas have just been made.

    Raises:
        HvdFtError: their state cannot be brought back.
    """

    def fail() -> None:
        if rendezvous.rank == 0:
            firsts = ", ".join(str(context.nodes.firsts[node]) for node in fresh)
            raise HvdFtError(
                f"the state of the node of rank {firsts} cannot be brought back: start the job "
                "again, from its last checkpoint"
            )

    rendezvous.agree("bringing back the state of new nodes", fail)
