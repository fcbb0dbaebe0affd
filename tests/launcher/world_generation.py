"""A simulated generation of agents, with the mpirun that has started them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from job_world import LATENCY, Files, Job, World
from world_agent import RETRY_SECONDS, Agent, is_current
from world_shim import BEGIN_SECONDS, Shim

from hvd_ft.launcher.machine.actions import StartAgents

if TYPE_CHECKING:
    from world_launcher import Launcher

KILLED = -9
BAD_INPUT = 2
MEET_SECONDS = 0.1
KILL_SECONDS = 0.1
CANNOT_START_SECONDS = 1.0
TRY_AGAIN_SECONDS = 1.0
NOTICE_SECONDS = 0.2


class Generation:
    """A generation of agents, and its mpirun.

    Attributes:
        complete: whether all agents have met and have their files: workers are started.
        alive: whether mpirun is.
        stopped: whether it is stopped.
    """

    def __init__(self, launcher: Launcher, start: StartAgents) -> None:
        self.world: World = launcher.world
        self.launcher = launcher
        self.job: Job = launcher.job
        self.number = start.generation
        self.members = start.members
        self.act_lease = start.act_lease
        self.alive = True
        self.stopped = False
        self.met = self.complete = False
        self.begun_at = self.world.now
        self.agents: dict[int, Agent] = {}
        self._killed_away = False  # agents that could not be reached when mpirun ended
        self._unheard: list[Agent] = []  # whose end mpirun has not noticed
        self._over: set[int] = set()  # ranks whose agents have ended, as far as mpirun knows
        self._code = 0
        for place in self.members.places:
            for rank in place.ranks:
                delay = BEGIN_SECONDS + 0.03 * rank
                self.world.after(delay, self, "begin_agent", rank, place.host)

    # -------------------------------------------------------------- the start

    def begin_agent(self, rank: int, host: str) -> None:
        if not self.alive:
            return
        if not self.world.reaches(self.launcher.host, host):
            if self.world.hosts[host].alive:  # TCP tries again and again
                self.world.after(TRY_AGAIN_SECONDS, self, "begin_agent", rank, host)
            else:
                self.world.after(CANNOT_START_SECONDS, self, "fail", 255)
            return
        agent = self.agents[rank] = Agent(self, rank, host)
        agent.begin()
        if len(self.agents) == self.members.size:
            self.world.after(MEET_SECONDS, self, "meet")
        if len(self.agents) == 1:
            self.world.after(self.world.settings.start_timeout_seconds, self, "give_up_meeting")

    def fail(self, code: int) -> None:
        """mpirun cannot start something."""
        if self.alive and not self.stopped:
            self.end(code)

    def _together(self) -> bool:
        """Returns whether all agents are there, run, and reach each other."""
        if len(self.agents) < self.members.size:
            return False
        agents = self.agents.values()
        first = next(iter(agents)).host
        return all(agent.able and self.world.reaches(first, agent.host) for agent in agents)

    def meet(self) -> None:
        """All agents meet, and look for the job's files."""
        if not any(agent.alive for agent in self.agents.values()):
            return
        if not self._together():
            self.world.after(RETRY_SECONDS, self, "meet")
            return
        if not self.met:
            self.met = True
            self.world.note(f"the agents of generation {self.number} have met")
            if self.number > 0 and not self._find_files():
                self.decide(BAD_INPUT)
                return
            self.world.after(MEET_SECONDS, self, "meet")
            return
        self._complete()

    def give_up_meeting(self) -> None:
        if not self.complete and any(agent.alive for agent in self.agents.values()):
            self.world.note(f"the agents of generation {self.number} have not met in time")
            self.decide(BAD_INPUT)

    def _find_files(self) -> bool:
        """Looks which hosts have files, and has others begin anew; returns whether it can."""
        fresh = []
        for number, place in enumerate(self.members.places):
            files = self.world.hosts[place.host].files.get(self.job.number)
            if not is_current(files, self.members, place.first):
                fresh.append(number)
        if len(fresh) == len(self.members.places):
            self.world.note("the job is gone on all of its hosts")
            self.world.happened.add("state lost")
            return False
        for number in fresh:
            if not self.members.is_guest(number):
                self._clear_old(self.members.places[number].host)
        if self.job.step and 0 in fresh and len(fresh) > 1:
            self.world.note("the state of two hosts is lost")
            self.world.happened.add("state lost")
            return False
        return True

    def _clear_old(self, host: str) -> None:
        """Ends what a host has of an older epoch."""
        for shim in self.world.live_shims(host):
            if shim.job is self.job and shim.generation < self.number:
                shim.end(files_stay=False)
        self.world.hosts[host].files.pop(self.job.number, None)

    def _complete(self) -> None:
        """Workers are started, or taken over."""
        self.complete = self.job.begun = True
        self.job.leaves = False  # only the agents before knew
        self.world.note(f"generation {self.number} is complete")
        for place in self.members.places:
            files = self.world.hosts[place.host].files.setdefault(self.job.number, Files())
            files.note, files.kept = self.members, False
        for agent in self.agents.values():
            if agent.shim is None or not agent.shim.alive:
                agent.replace_shim()
                continue
            agent.shim.keeps = True
            back = agent.rank not in self.members.leaving
            if back or agent.rank not in self.job.left:
                agent.shim.start_worker()
            agent.look_at_asked()
        if self.job.over is not None:
            self.decide(self.job.over)

    # -------------------------------------------------------------- the training

    def works(self) -> bool:
        """Returns whether its agents serve their workers."""
        return self.complete and self._together()

    def shim_of(self, rank: int) -> Shim | None:
        """Returns the shim of a rank's agent."""
        agent = self.agents.get(rank)
        return agent.shim if agent is not None and agent.alive else None

    def worker_acts(self, rank: int) -> bool:
        """Returns whether the worker of a rank does, or is restarted if it must be."""
        shim = self.shim_of(rank)
        if shim is None or not shim.alive:
            return False
        if shim.worker is not None and not shim.worker.alive:
            shim.start_worker()
        return shim.worker_acts()

    def end_worker(self, rank: int) -> None:
        """Ends the worker of a rank that has left."""
        shim = self.shim_of(rank)
        if shim is not None:
            shim.worker = None

    def decide(self, code: int) -> None:
        """The job is over with a code; the agents that can be reached learn it."""
        if self.job.over is None and (self.complete or code == BAD_INPUT):
            self.job.over = code
            self.world.note(f"the agents end the job with code {code}")
        decided = code if self.job.over is None else self.job.over
        alive = [agent for agent in self.agents.values() if agent.alive]
        for agent in alive:
            if self.world.reaches(alive[0].host, agent.host):
                self.world.after(0.05, agent, "learn", decided)

    def one_has_learnt(self) -> None:
        alive = [agent for agent in self.agents.values() if agent.alive]
        if all(agent.code is not None for agent in alive) and len(alive) == self.members.size:
            for agent in alive:
                self.world.after(0.2, agent, "leave")

    # -------------------------------------------------------------- the end

    def agent_ended(self, agent: Agent) -> None:
        """mpirun notices the end of an agent, if it can."""
        if not self.alive or agent.unnoticed:
            return
        if self.stopped or not self.world.reaches(self.launcher.host, agent.host):
            self._unheard.append(agent)
            return
        self._over.add(agent.rank)
        self._code = self._code or agent.code or 0
        if agent.ended or not self.met:
            # Hydra does not see the death of one that has not yet begun with MPI.
            if self._over >= set(range(self.members.size)):
                code = self._code if agent.ended else BAD_INPUT
                self.world.after(NOTICE_SECONDS, self, "fail", code)
        else:
            self.world.after(NOTICE_SECONDS, self, "fail", agent.code or 9)

    def heard_again(self) -> None:
        """A link is there again, or mpirun continues."""
        if self._killed_away:
            self._kill_agents()
        if self.alive and not self.stopped:
            unheard, self._unheard = self._unheard, []
            for agent in unheard:
                self.agent_ended(agent)

    def kill(self) -> None:
        """Kills mpirun, which takes a moment."""
        self.world.after(KILL_SECONDS, self, "_killed")

    def _killed(self) -> None:
        if self.alive:
            self.end(KILLED)

    def stop(self) -> None:
        self.stopped = True

    def let_continue(self) -> None:
        self.stopped = False
        self.heard_again()

    def end(self, code: int) -> None:
        """mpirun ends, and its agents with it."""
        self.alive = False
        self.world.note(f"mpirun of generation {self.number} ends with {code}")
        self.world.after(0.05, self, "_kill_agents")
        self.world.after(LATENCY, self.launcher, "mpirun_over", self, code)

    def _kill_agents(self) -> None:
        self._killed_away = False
        for agent in self.agents.values():
            if not agent.alive:
                continue
            if self.world.reaches(self.launcher.host, agent.host):
                agent.die("of mpirun's end")
            else:
                self._killed_away = True
