"""The agents' part in checkpoints: who writes them, where, and which one a preemption awaits."""

import contextlib
import os
from pathlib import Path

from hvd_ft.agent.beginning import Beginning
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.checkpointer import unwritten
from hvd_ft.checkpointer.command import writer_command
from hvd_ft.native.types import Event, EventType
from hvd_ft.system.say import say
from hvd_ft.system.writable import EXIT_NOT_WRITTEN, make_directory


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

    Raises:
        HvdFtError: nothing can be written there when the job begins.
    """
    directory = context.settings.checkpoint_dir
    if directory is None:
        return None
    if context.launch.generation == 0:  # later the training continues without
        rendezvous.agree(
            "the check of the checkpoint directory",
            lambda: make_directory(directory) if _leads(context) else None,
        )
    group = _group(rendezvous, context, Path(directory))
    if not _leads(context):
        return None
    resumed = beginning.resumed
    return writer_command(
        context.arenas,
        context.job,
        run=resumed.run if resumed else context.job,
        begun=beginning.begun,
        group=group,
        base=name_within(directory, resumed.path) if resumed else None,
    )


def name_within(directory: str, path: str) -> str | None:
    """Returns the name that a checkpoint has in a directory, however its path was given.

    Args:
        directory: a directory of checkpoints.
        path: path of the checkpoint; it or a directory above may be a symbolic link.

    Returns:
        None if it does not lie there.
    """
    with contextlib.suppress(OSError):  # it is on another host
        found = Path(path).resolve(strict=True)
        if os.path.samefile(found.parent, directory):
            return found.name
    return None


def code_with_checkpoints(code: int, context: JobContext) -> int:
    """Returns the exit code of job and checkpoints together; reports a missing checkpoint.

    Args:
        code: exit code of the training.
        context: this agent's place in the job; only rank 0's node knows.
    """
    if code or context.rank or not (missing := unwritten.noted(context.arenas)):
        return code
    say(f"the training has ended well, but {missing}")
    return EXIT_NOT_WRITTEN


class Preemption:
    """Decides when a preempted job has its checkpoint; for rank 0's agent. Pure."""

    def __init__(self) -> None:
        self._asked = False
        self._position: int | None = None  # of the op log, behind which the checkpoint lies

    def ask(self) -> bool:
        """Notes that a checkpoint is requested; returns whether this is the first request."""
        before, self._asked = self._asked, True
        return not before

    def is_done_by(self, event: Event) -> bool:
        """Handles an event of the job; returns whether it completes the checkpoint.

        A checkpoint that was begun before the request does not count.
        """
        if not self._asked:
            return False
        if event.type is EventType.CHECKPOINT:
            self._position = event.detail
        return event.type is EventType.CHECKPOINTED and event.detail == self._position


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
