"""The agents' part in checkpoints: which nodes share a directory, and who writes for a node."""

import contextlib
import os
from pathlib import Path

from hvd_ft.agent.beginning import Beginning
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.checkpointer.command import writer_command


def writer_of(
    rendezvous: Rendezvous, context: JobContext, beginning: Beginning
) -> list[str] | None:
    """Returns the command line of this node's checkpoint writer. Collective.

    Args:
        rendezvous: of all agents.
        context: this agent's place in the job.
        beginning: of the job.

    Returns:
        None if there are no checkpoints, or another agent of this node starts the writer.
    """
    directory = context.settings.checkpoint_dir
    if directory is None:
        return None
    group = _group(rendezvous, context, Path(directory))
    if not _leads(context):
        return None
    base, resumed = None, beginning.resumed
    if resumed is not None and Path(resumed.path).parent == Path(directory):
        base = Path(resumed.path).name
    return writer_command(
        context.arenas,
        context.job,
        run=resumed.run if resumed else context.job,
        begun=beginning.begun,
        group=group,
        base=base,
    )


def _leads(context: JobContext) -> bool:
    nodes = context.nodes
    return context.rank == nodes.firsts[nodes.node_of(context.rank)]


def _group(rendezvous: Rendezvous, context: JobContext, directory: Path) -> list[int]:
    """Returns the nodes that see the same directory as this one."""
    nodes = context.nodes
    node = nodes.node_of(context.rank)
    if len(nodes) == 1:
        return [node]

    def token(of: int) -> Path:
        return directory / f".{context.job}-node{of}"

    def leave_token() -> None:
        # Where nothing can be written the writer says so.
        with contextlib.suppress(OSError):
            directory.mkdir(0o700, parents=True, exist_ok=True)
            if _leads(context):
                os.close(os.open(token(node), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    rendezvous.agree("making the checkpoint directory", leave_token)
    seen = [other for other in range(len(nodes)) if token(other).exists()]
    rendezvous.exchange("looking who shares the checkpoint directory", None)
    if _leads(context):
        with contextlib.suppress(OSError):
            token(node).unlink()
    return sorted({node, *seen})
