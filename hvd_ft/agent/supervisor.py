"""The life of one rank's worker, as its agent sees it: a loop over reports, events and signals."""

import functools
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hvd_ft import native
from hvd_ft.agent.adopted_worker import GoesOn, HasEnded, ToStart, reattach_verdict
from hvd_ft.agent.event_watch import JobNews
from hvd_ft.agent.hang_rule import Stuck
from hvd_ft.agent.hook_commands import Commands
from hvd_ft.agent.report_writer import Journal
from hvd_ft.agent.restart_policy import Done, End, RestartPolicy, Stop
from hvd_ft.agent.shim_care import ShimCare
from hvd_ft.agent.stacks import StackReader
from hvd_ft.agent.stall_watch import StallWatch
from hvd_ft.errors import HvdFtError
from hvd_ft.job.drills import Drill, drill_environment
from hvd_ft.job.settings import Settings
from hvd_ft.native.stacks import SIGNAL as STACKS_SIGNAL
from hvd_ft.native.types import BEFORE_INIT
from hvd_ft.shim.children import SPARES, WORKER
from hvd_ft.shim.client import ShimClient
from hvd_ft.system.channel import Channel, Message
from hvd_ft.system.stop_signals import StopSignals
from hvd_ft.system.wait_status import describe

GRACE_SECONDS = 3.0  # for a worker after SIGTERM, and for hook commands at the job's end
EXIT_LOST = 1
ATTACHED, FAILED = native.EventType.ATTACHED, native.EventType.FAILED
JOINED = native.EventType.JOINED
_NEVER = float("inf")


@dataclass(frozen=True)
class Rank:
    """What the supervisor needs to know of its rank.

    Attributes:
        rank: its number.
        job: the job's id.
        argv: the worker's command line.
        env: the worker's environment, but for the incarnation and its drills.
        drills: deaths of workers, of any rank.
    """

    rank: int
    job: str
    argv: Sequence[str]
    env: dict[str, str]
    drills: Sequence[Drill] = ()


class Supervisor:
    """Keeps the worker of one rank going until the job ends.

    Args:
        rank: whose worker it is.
        settings: the limits.
        agent: this rank's side of the core, with its engine started.
        observer: of the job.
        shim: starts the worker.
        care: of the shim.
        commands: the user's hook commands.
        journal: takes the events of the whole job; None on all ranks but one.
        launchers: a pidfd for every process without which the job is to end, with its name.
        signals: those that end the job.
        stacks: of the worker.
    """

    def __init__(
        self,
        *,
        rank: Rank,
        settings: Settings,
        agent: native.Agent,
        observer: native.Observer,
        shim: ShimClient,
        care: ShimCare,
        commands: Commands,
        journal: Journal | None,
        launchers: Mapping[int, str],
        signals: StopSignals,
        stacks: StackReader,
    ) -> None:
        self._rank = rank
        self._settings = settings
        self._agent = agent
        self._observer = observer
        self._shim = shim
        self._care = care
        self._commands = commands
        self._journal = journal
        self._launchers = launchers
        self._signals = signals
        self._selector = selectors.DefaultSelector()
        self._policy = RestartPolicy(rank.rank, settings)
        self._stacks = stacks
        self._stall = StallWatch(
            rank.rank,
            settings,
            observer,
            stacks,
            ask=lambda: shim.signal(WORKER, STACKS_SIGNAL),
            warn=_say,
            note=self._note_stacks,
        )
        self._stuck: Stuck | None = None  # this incarnation, so it was killed
        self._incarnation = 0
        self._attached = -1  # the latest incarnation that has
        self._interrupted = False  # the worker has got the user's SIGINT
        self._pid: int | None = None  # of the worker; 0 between the order and the shim's report
        self._failed_ns = 0  # when the latest worker died, CLOCK_MONOTONIC
        self._back_by = _NEVER  # the times below are time.monotonic()'s
        self._term_at = _NEVER
        self._kill_at = _NEVER
        self._leave_at = _NEVER
        self._shim_lost = False
        self._events_seen = 0
        self._over = False
        self._said = False
        self.launcher_lost = False

    def run(self) -> int:
        """Runs the worker, and restarts it, until the job has ended.

        Returns:
            The job's exit code.
        """
        with self._selector, JobNews(self._agent) as news:
            self._on_readable(self._signals, self._on_signal)
            self._on_readable(news, lambda: self._on_news(news))
            self._on_readable(self._shim.channel, self._on_shim)
            self._on_readable(self._stacks, self._stall.on_readable)
            self._care.begin()
            if self._settings.launcher and not self._launchers:
                os._exit(EXIT_LOST)  # they died before we looked
            for pidfd in self._launchers:
                self._on_readable(pidfd, functools.partial(self._on_launcher_lost, pidfd))
            if self._settings.generation == 0:
                self._start()
            else:
                self._take_over()
            while not self._may_leave():
                left = max(0.0, self._next_deadline() - time.monotonic())
                for key, _ in self._selector.select(None if left == _NEVER else left):
                    key.data()
                self._check_deadlines()
        self.read_events()
        stop = self._agent.fatal_text()
        return stop[1] if stop else 0

    def _on_readable(
        self, source: StopSignals | Channel | JobNews | StackReader | int, react: Callable[[], None]
    ) -> None:
        self._selector.register(source, selectors.EVENT_READ, react)

    # -------------------------------------------------------------- the worker

    def _start(self) -> None:
        self._pid = 0
        self._stuck = None
        self._stall.begin()
        env = {
            **self._rank.env,
            "HOROVOD_FT_INCARNATION": str(self._incarnation),
            **drill_environment(self._rank.drills, self._rank.rank, self._incarnation),
        }
        # A first start finds no spare: those are prepared when all ranks run.
        again = self._incarnation > 0
        self._shim.start(WORKER, list(self._rank.argv), env, os.getcwd(), spare=again)

    def _take_over(self) -> None:
        """Goes on where the agent of an older generation was killed."""
        past = self._observer.events()
        self._events_seen = len(past)
        if self._journal:
            self._journal.add(past)
        attached = [e.incarnation for e in past if (e.rank, e.type) == (self._rank.rank, ATTACHED)]
        self._attached = max(attached, default=-1)
        failed = [e.time_ns for e in past if (e.rank, e.type) == (self._rank.rank, FAILED)]
        self._policy.remember([time_ns / 1e9 for time_ns in failed])
        self._failed_ns = max(failed, default=0)
        found = self._shim.found["worker"] if self._shim.found else None
        verdict = reattach_verdict(found, self._observer.status(self._rank.rank))
        if isinstance(verdict, ToStart):
            self._incarnation = verdict.incarnation
            self._start()
        elif isinstance(verdict, (GoesOn, HasEnded)):
            self._incarnation = verdict.incarnation
            if not verdict.noted:
                self._agent.started(verdict.incarnation, verdict.pid)
        if isinstance(verdict, GoesOn):
            self._pid = verdict.pid
            self._stall.begin()
            if not verdict.begun:
                self._shim.go()
            if self._failed_ns:
                self._back_by = time.monotonic() + self._settings.recovery_timeout_seconds
        elif isinstance(verdict, HasEnded):
            self._on_worker_ended(verdict.status, verdict.time_ns or time.monotonic_ns())

    def _on_shim(self) -> None:
        messages = self._shim.channel.receive()
        if messages is None:
            self._on_shim_lost()
        for message in messages or ():
            report = message["report"]
            if report == "beat":
                self._care.answered()
            elif report == "unkillable":
                pids = ", ".join(map(str, message["pids"]))
                _say(f"rank {self._rank.rank} left processes that SIGKILL does not end: {pids}")
            elif report == "interrupt":
                self._interrupt_worker()
                self._shim.interrupted()
            elif report == "note":
                if self._journal:
                    self._journal.note(message["note"])
            elif report == "stop":
                self._stop_job(signal.Signals(message["signal"]))
            elif message["name"] == WORKER:
                self._on_worker(message)
            elif message["name"] == SPARES:
                if report != "started" and message.get("status", 1) and not self._over:
                    _say("nobody prepares spares any more; the job goes on without them")
            elif report != "started":
                self._on_command_ended(message)

    def _on_shim_lost(self) -> None:
        """Another shim takes the place of one that was killed, another worker that of its."""
        self._selector.unregister(self._shim.channel)
        worker, self._pid = self._pid, None
        if self._over:
            self._shim_lost = True
            return
        killed = self._shim.pid
        try:
            self._care.replace()
        except HvdFtError as error:
            self._shim_lost = True
            self._agent.fatal(1, f"the shim of rank {self._rank.rank} was killed, and {error}")
            return
        self._on_readable(self._shim.channel, self._on_shim)
        _say(
            f"the shim of rank {self._rank.rank} (pid {killed}) was killed, and its worker with "
            f"it; another one (pid {self._shim.pid}) takes its place"
        )
        self._commands.forget()
        if worker is not None:
            self._on_worker_ended(signal.SIGKILL, time.monotonic_ns())

    def _on_worker(self, message: Message) -> None:
        if message["report"] == "started":
            self._pid = message["pid"]
            self._agent.started(self._incarnation, message["pid"])
            if message["spare"]:
                self._shim.go()  # it attaches at once, and has to be known by then
                _say(f"rank {self._rank.rank}: a spare (pid {message['pid']}) has taken over")
        elif message["report"] == "refused":
            self._pid = None
            self._agent.fatal(127, f"rank {self._rank.rank}: {message['error']}")
        else:
            self._pid = None
            self._back_by = min(
                self._back_by, time.monotonic() + self._settings.recovery_timeout_seconds
            )
            self._on_worker_ended(message["status"], message["time_ns"])

    def _on_worker_ended(self, status: int, time_ns: int) -> None:
        if self._over:
            return
        self.read_events()  # it may have attached just before
        end = self._end(status)
        verdict = self._policy.ended(end, time_ns / 1e9)
        if isinstance(verdict, Done):
            self._back_by = _NEVER
            self._agent.done(status)
            return
        if isinstance(verdict, Stop) and not verdict.failed:
            # Stopped first: a job whose ranks are all done ends with 0.
            self._agent.fatal(verdict.exit_code, verdict.message)
            self._agent.done(status)
            return
        self._failed_ns = time_ns
        self._agent.failed(status)
        self._commands.run(
            "on-failure", {**self._facts, "HOROVOD_FT_EXIT_STATUS": describe(status)}
        )
        if isinstance(verdict, Stop):
            self._agent.fatal(verdict.exit_code, verdict.message)
            return
        died = f"{self._stuck}; killed" if self._stuck else f"died ({describe(status)})"
        self._incarnation += 1
        self._start()
        _say(
            f"rank {self._rank.rank} {died} at step {end.step}; "
            f"restarting as incarnation {self._incarnation}"
        )

    def _end(self, status: int) -> End:
        watch = self._observer.watch(self._rank.rank)
        words = str(self._stuck) if self._stuck else self._agent.last_words()
        return End(
            status=status,
            incarnation=self._incarnation,
            attached=self._attached == self._incarnation and not words.startswith(BEFORE_INIT),
            orderly=self._agent.worker_ended_orderly(),
            step=watch.step,
            reason=words,
            replayed=watch.executed,
            owed=watch.contributed,
        )

    @property
    def _facts(self) -> dict[str, str]:
        """What hook commands get to know of the incarnation at hand."""
        return {
            "HOROVOD_FT_JOB": self._rank.job,
            "HOROVOD_FT_RANK": str(self._rank.rank),
            "HOROVOD_FT_INCARNATION": str(self._incarnation),
            "HOROVOD_FT_STEP": str(self._observer.status(self._rank.rank).step),
            "HOROVOD_FT_TIME": f"{time.time():.3f}",
        }

    # -------------------------------------------------------------- the job

    def _on_news(self, news: JobNews) -> None:
        news.take()
        self.read_events()
        if news.over and not self._over:
            self._over = True
            self._leave_at = time.monotonic() + GRACE_SECONDS
            self._back_by = _NEVER
            self._say_why()
            if self._pid is not None:
                grace = self._settings.stop_grace_seconds if self._interrupted else 0.0
                self._term_at = time.monotonic() + grace
                self._leave_at += grace + 2 * GRACE_SECONDS

    def _say_why(self) -> None:
        """Says why the job stops, if it was this rank that stopped it; once."""
        stop = self._agent.fatal_text()
        if stop and stop[2] == self._rank.rank and not self._said:
            self._said = True
            _say(stop[0])

    def read_events(self) -> None:
        """Reads the job's news, for the journal and about this rank."""
        events = self._observer.events(self._events_seen)
        self._events_seen += len(events)
        if self._journal:
            self._journal.add(events)
        for event in events:
            if event.rank != self._rank.rank:
                continue
            if event.type is native.EventType.ATTACHED:
                self._attached = event.incarnation
            elif event.type is JOINED and event.incarnation == self._incarnation > 0:
                self._on_back(event)

    def _on_back(self, event: native.Event) -> None:
        self._back_by = _NEVER
        seconds = (event.time_ns - self._failed_ns) / 1e9
        _say(f"rank {event.rank} is back after {seconds:.1f} s: {event.detail} ops replayed")
        self._commands.run(
            "on-restart",
            {
                **self._facts,
                "HOROVOD_FT_SECONDS_DOWN": f"{seconds:.3f}",
                "HOROVOD_FT_OPS_REPLAYED": str(event.detail),
            },
        )

    # -------------------------------------------------------------- time and signals

    def _next_deadline(self) -> float:
        return min(
            self._back_by,
            self._term_at,
            self._kill_at,
            self._care.look_at,
            self._leave_at,
            self._stall.look_at,
            self._commands.deadline or _NEVER,
        )

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        self._commands.kill_late()
        if self._care.look_at <= now and self._care.look():
            _say(f"the shim of rank {self._rank.rank} was stopped, so it was killed")
        if self._term_at <= now:
            self._term_at = _NEVER
            self._kill_at = now + GRACE_SECONDS
            self._shim.kill(WORKER, signal.SIGTERM)
        if self._kill_at <= now:
            self._kill_at = _NEVER
            self._shim.kill(WORKER, signal.SIGKILL)
        if self._back_by <= now:
            self._back_by = _NEVER
            self._check_back()
        if self._stall.look_at <= now:
            self._look_for_stall()

    def _look_for_stall(self) -> None:
        if not self._pid or self._over or self._attached != self._incarnation:
            self._stall.skip()
            return
        self._stuck = self._stall.look(self._pid)
        if self._stuck:
            self._shim.kill(WORKER, signal.SIGKILL)

    def _note_stacks(self, text: str) -> None:
        """Has a worker's stacks written into the report, which the agent of rank 0 writes."""
        whose = {"rank": self._rank.rank, "incarnation": self._incarnation}
        note = {"type": "STACKS", "time_ns": time.monotonic_ns(), **whose, "text": text}
        if self._journal:
            self._journal.note(note)
        else:
            self._shim.note(note)

    def _check_back(self) -> None:
        # The state, not the events: the ring of events may have gone round before we looked.
        state = self._observer.status(self._rank.rank).state
        if state in (native.State.RESTARTING, native.State.REPLAYING):
            self._agent.fatal(
                1,
                f"rank {self._rank.rank} (incarnation {self._incarnation}, pid {self._pid}) did "
                f"not come back within {self._settings.recovery_timeout_seconds:g} s: see its "
                "output above, or raise HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS",
            )

    def _may_leave(self) -> bool:
        """Tells whether the job is over and nothing of this rank runs any more, or it is late."""
        if not self._over:
            return False
        running = self._pid is not None or self._commands.running
        return self._shim_lost or not running or self._leave_at <= time.monotonic()

    def _on_signal(self) -> None:
        for stop in self._signals.received:
            if stop == signal.SIGINT:
                self._interrupt_worker()
            self._stop_job(stop)

    def _stop_job(self, number: signal.Signals) -> None:
        self._agent.fatal(128 + number, f"stopped by {number.name}")

    def _interrupt_worker(self) -> None:
        """Has the script see the user's Ctrl-C, so that it can save what it has."""
        self.read_events()
        # One that has not attached is still importing, and would print how far it was.
        if self._pid and self._attached == self._incarnation:
            self._interrupted = True
            self._shim.kill(WORKER, signal.SIGINT)

    def _on_launcher_lost(self, pidfd: int) -> None:
        if self._settings.launcher:
            os._exit(EXIT_LOST)  # the shim keeps the worker, and hvdft run starts new agents
        self._selector.unregister(pidfd)
        name = self._launchers[pidfd]
        self._agent.fatal(128 + signal.SIGTERM, f"{name} was killed, so the job ends")
        # At once: when the first agent has left, Hydra kills the others.
        self._say_why()
        self.launcher_lost = True

    def _on_command_ended(self, message: Message) -> None:
        complaint = self._commands.ended(
            message["name"], message.get("status"), message.get("error", "")
        )
        if complaint:
            _say(f"rank {self._rank.rank}: {complaint}")


def _say(text: str) -> None:
    print(f"hvdft: {text}", file=sys.stderr, flush=True)
