"""How much memory a running job's agents and arenas take."""

import contextlib

import psutil

from hvd_ft.job.processes import job_processes
from hvd_ft.native.observer import Observer

_EVERY_TICKS = 4  # reading all mappings takes some milliseconds


class MemoryWatch:
    """Follows a job; give it to `launch` as its `watch`, or call it from there.

    Args:
        job_id: The id of the job.

    Attributes:
        arena_bytes: The most memory that the job's arenas had in use.
        agent_bytes: The most memory of one agent with its shim, without the arenas; shared memory
            is divided equally among the processes that share it (PSS).
    """

    def __init__(self, job_id: str) -> None:
        self.arena_bytes = 0
        self.agent_bytes = 0
        self._job_id = job_id
        self._ticks = 0

    def __call__(self, observer: Observer) -> None:
        """Measures the job as it is now."""
        self.arena_bytes = max(self.arena_bytes, observer.used_bytes)
        if self._ticks % _EVERY_TICKS == 0:
            self.agent_bytes = max(self.agent_bytes, *_agents(self._job_id).values(), 0)
        self._ticks += 1


def _agents(job_id: str) -> dict[int, int]:
    """Returns the bytes of each agent with its shim, by the agent's process id."""
    found: dict[int, int] = {}
    for process in job_processes(job_id):
        with contextlib.suppress(psutil.Error):
            if "hvd_ft.agent" not in process.cmdline():
                continue
            # A shim is a fork of its agent.
            parent = process.parent()
            shim = parent is not None and "hvd_ft.agent" in parent.cmdline()
            place = parent.pid if shim and parent else process.pid
            maps = process.memory_maps(grouped=True)
            own = sum(part.pss for part in maps if f"/{job_id}/" not in part.path)
            found[place] = found.get(place, 0) + own
    return found
