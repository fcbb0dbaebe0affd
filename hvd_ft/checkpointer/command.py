"""The command line of a checkpoint writer."""

import sys
from collections.abc import Sequence


def writer_command(
    arenas: str, job: str, *, run: str, begun: int, group: Sequence[int], base: str | None
) -> list[str]:
    """Returns the command line of a writer, whose settings are in the environment.

    Args:
        arenas: directory of the node's arenas.
        job: the job's id.
        run: id of the first job in the series of jobs that resumed one from another.
        begun: when the job began, in seconds since 1970.
        group: the nodes that see the same directory.
        base: name of the checkpoint from which the job was resumed.
    """
    command = [sys.executable, "-m", "hvd_ft.checkpointer", arenas, job, "--run", run]
    command += ["--begun", str(begun), *(["--base", base] if base else [])]
    return [*command, "--group", *map(str, group)]
