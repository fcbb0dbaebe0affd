"""How a job began: facts from its first agents that every later generation has to know.

Every host of the job keeps them in a file in the job's directory. A host that is new in the job has
no such file, and gets the facts from the others.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.agent.resuming import Resumed, resume
from hvd_ft.system.json_text import read_json
from hvd_ft.system.whole_file import write_whole
from hvd_ft.system.wire import convert

_NAME = "beginning"


@dataclass(frozen=True)
class Beginning:
    """How a job began.

    Attributes:
        begun: when, in seconds since 1970 by rank 0's clock.
        resumed: the checkpoint from which it was resumed; None: it was not resumed.
    """

    begun: int
    resumed: Resumed | None


def beginning(
    rendezvous: Rendezvous,
    context: JobContext,
    resume: Callable[[Rendezvous, JobContext], Resumed | None] = resume,
) -> Beginning:
    """Returns how the job began, and records it on every host that has no record. Collective.

    The record counts, not this launcher's settings, because another launcher may have begun the
    job. If no host has a record, no worker has ever been started.

    Args:
        rendezvous: the rendezvous of all agents.
        context: this agent's place in the job.
        resume: finds the checkpoint from which a new job resumes.

    Raises:
        HvdFtError: there is no checkpoint that can be used, or the record cannot be written.
    """
    path, leads = os.path.join(context.directory, _NAME), context.leads_host
    mine = _read(path) if leads else None
    told = [each for each in rendezvous.exchange("how the job began", mine) if each is not None]
    if told:
        found: Beginning = convert(told[0], Beginning)
    else:
        resumed = resume(rendezvous, context)
        now = int(time.time())
        found = Beginning(rendezvous.exchange("when the job began", now)[0], resumed)

    def note() -> None:
        if leads and mine is None:
            write_whole(path, json.dumps(asdict(found)).encode())

    rendezvous.agree("noting how the job began", note)
    return found


def _read(path: str) -> Any:
    """Returns the record as plain data; None if there is none that can be read."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            noted = read_json(file.read())
        convert(noted, Beginning)
    except (OSError, ValueError):
        return None
    return noted
