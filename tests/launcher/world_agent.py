"""A simulated agent."""

from __future__ import annotations

from typing import Any

from job_world import LATENCY, Files, World, leave_files
from world_shim import Shim

from hvd_ft.job.lifeline_messages import Preempt
from hvd_ft.shim.reattach import answer_seconds

RETRY_SECONDS = 0.25
FINALIZE_SECONDS = 4.0  # for an agent to wait for others at the end of the job
_NEVER = float("-inf")


class Agent:
    """An agent of a generation."""

    def __init__(self, generation: Any, rank: int, host: str) -> None:
        self.generation, self.rank, self.host = generation, rank, host
        self.world: World = generation.world
        self.alive = True
        self.ended = False  # in good order
        self.unnoticed = False  # as its proxy has died with it
        self.code: int | None = None
        self.frozen_until = _NEVER
        self._asked: list[Any] = []
        self._waits_since: float | None = None  # for a shim that does not answer
        self.shim: Shim | None = None

    def begin(self) -> None:
        """Finds its shim, or starts one; a frozen one answers later, or is killed."""
        if not self.alive:
            return
        files = self.world.hosts[self.host].files.get(self.generation.job.number)
        found = None
        if self.generation.number > 0 and is_current(files, self.generation.members, self.rank):
            found = self._shim_there()
        if found is None:
            self.shim = Shim(self)
        elif found.frozen:
            if self._waits_since is None:
                self._waits_since = self.world.now
            limit = answer_seconds(self.world.settings.adoption_timeout_seconds)
            if self.world.now < self._waits_since + limit:
                self.world.after(RETRY_SECONDS, self, "begin")
            else:
                found.is_killed()
                self.shim = Shim(self)
        elif found.reattached(self):
            self.shim = found
        else:
            self.world.note(f"rank {self.rank}'s shim on {self.host} refuses the agent")
            self.die("refused")

    def _shim_there(self) -> Shim | None:
        for shim in self.world.live_shims(self.host):
            if shim.job is self.generation.job and shim.rank == self.rank and shim.keeps:
                return shim
        return None

    @property
    def able(self) -> bool:
        """Whether it runs."""
        frozen = self.world.now < self.frozen_until
        shim = self.shim
        return self.alive and not frozen and shim is not None and not shim.stopped

    def asked(self, message: Any) -> None:
        """The launcher wants the job to end."""
        self._asked.append(message)
        self.look_at_asked()

    def look_at_asked(self) -> None:
        if not self.generation.complete or not self.able:
            return
        for message in self._asked:
            if isinstance(message, Preempt):
                self.generation.job.leaves = True
            else:
                self.generation.decide(128 + message.signal)
        self._asked = []

    def die(self, why: str) -> None:
        if not self.alive:
            return
        self.alive = False
        if why == "killed":
            self.world.note(f"agent of rank {self.rank} on {self.host} dies")
        if self.shim is not None:
            self.world.after(LATENCY, self.shim, "agent_gone", self)
        self.world.after(0.2, self.generation, "agent_ended", self)

    def replace_shim(self) -> None:
        """Its shim has died."""
        if not self.alive or (self.shim is not None and self.shim.alive):
            return
        if not self.generation.complete:
            self.die("it has no shim")
            return
        held, self.shim = self.shim, Shim(self)
        assert held is not None
        self.shim.keeps, self.shim.known = held.keeps, held.known
        if self.rank not in self.generation.job.left and self.code is None:
            self.shim.start_worker()

    def learn(self, code: int) -> None:
        """It learns that the job is over."""
        if not self.alive or self.code is not None:
            return
        if not self.able:
            self.world.after(RETRY_SECONDS, self, "learn", code)
            return
        self.code = code
        if self.shim is not None:
            self.shim.release(code)
        self.world.after(FINALIZE_SECONDS, self, "leave")
        self.generation.one_has_learnt()

    def leave(self) -> None:
        """It ends in good order, and its shim with it."""
        if not self.alive:
            return
        self.alive, self.ended = False, True
        if self.shim is not None:
            self.shim.agent = None
            self.shim.end(files_stay=False)
        leave_files(self.world, self.host, self.generation.job, files_stay=False)
        self.world.after(LATENCY, self.generation, "agent_ended", self)


def is_current(files: Files | None, members: Any, rank: int) -> bool:
    """As member_file.py."""
    if files is None or files.note is None:
        return False
    number = members.place_of(rank)
    return bool(files.note.places[number].since == members.places[number].since)
