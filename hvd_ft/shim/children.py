"""The processes of one shim: the worker, the spare manager, the checkpoint writer, hook commands.

They have names. When a named process dies, the processes that it has left behind are killed too.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable

from hvd_ft.job.bound_process import bind_worker
from hvd_ft.shim.messages import (
    Exited,
    FoundWorker,
    Reattached,
    Refused,
    Report,
    Start,
    Started,
    Unkillable,
)
from hvd_ft.shim.output_relay import OutputRelay
from hvd_ft.spares.handover import taken_spares
from hvd_ft.spares.taken_spare import TakenSpare
from hvd_ft.system.child import begin_child
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.oom import OomWatch
from hvd_ft.system.reaper import kill_descendants
from hvd_ft.system.stop_signals import END_SIGNAL, HELD_SIGNALS

WORKER = "worker"
SPARES = "spares"  # the spare manager
CHECKPOINTS = "checkpoints"  # the checkpoint writer
_FAMILIES = {WORKER, SPARES}


class Children:
    """The processes that a shim has started and not yet reaped.

    Args:
        loop: watches the connection to a spare.
        relay: receives their output. report: sends a report to the agent.

    Attributes:
        worker: the latest worker, for the next agent; None if there was none.
    """

    def __init__(
        self, loop: EventLoop, relay: OutputRelay, report: Callable[[Report], None]
    ) -> None:
        self._loop = loop
        self._relay = relay
        self._tell = report
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._end_seconds: dict[str, float] = {}  # of those that end by END_SIGNAL
        self._taken: TakenSpare | None = None  # the worker's connection, if it was a spare
        self._oom: OomWatch | None = None  # of the worker
        self._left: set[int] = set()  # shims of workers that a dead spare manager has left
        self.worker: FoundWorker | None = None

    @property
    def names(self) -> list[str]:
        """Names of the running processes, except a worker that was a spare."""
        return list(self._children)

    def start(self, order: Start, directory: str | None) -> None:
        """Starts a process, or turns a spare into it.

        Args:
            order: what to start.
            directory: of the job, with the spares' sockets.
        """
        if not (order.spare and directory and self._take_spare(order, directory)):
            self._start(order)

    def go(self) -> None:
        """Lets the worker that was a spare begin."""
        if self._taken and not self._taken.begun:
            self._taken.go()

    def kill(self, name: str, number: int) -> None:
        """Sends a signal to the process group of that name, if it runs."""
        if self._taken and name == WORKER:
            self._taken.kill(number)
        elif name in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._children[name].pid, number)

    def signal(self, name: str, number: int) -> None:
        """Sends a signal to the process of that name alone, if it runs."""
        if self._taken and name == WORKER:
            self._taken.signal(number)
        elif name in self._children:
            self._children[name].send_signal(number)

    def look_at_memory(self) -> None:
        """Notes how often the kernel has killed for lack of memory where the worker runs."""
        if self._oom is not None:
            self._oom.look()

    def found(self) -> Reattached:
        """Returns the first report to a new agent."""
        if self.worker is not None and self._taken is not None:
            self.worker.begun = self._taken.begun
        return Reattached(os.getpid(), self.worker, self.names)

    def reap(self) -> None:
        """Reaps and reports dead processes, and kills the processes that they have left behind.

        But not the shims of spares that have become workers: each is in the hands of the shim of
        that worker's rank.
        """
        manager = self._children.get(SPARES)
        ended = self._reap()
        if SPARES in ended and manager is not None:
            self._left |= taken_spares(manager.pid)
        if _FAMILIES & ended:
            self._kill_descendants({child.pid for child in self._children.values()} | self._left)

    def end(self) -> None:
        """Ends all of them: those that end by END_SIGNAL last."""
        if self._taken is not None:
            self._taken.end()
        last = {name: self._children[name] for name in self._end_seconds if name in self._children}
        self._kill_descendants({child.pid for child in last.values()})
        for name, child in last.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.send_signal(END_SIGNAL)
                child.wait(self._end_seconds[name])
        self._kill_descendants(spared=set())

    def _report(self, report: Started | Refused | Exited) -> None:
        if report.name == WORKER:
            assert self.worker is not None
            if isinstance(report, Started):
                self.worker.pid = report.pid
                self._oom = OomWatch(report.pid, time.monotonic())
            elif isinstance(report, Exited):
                if report.status == signal.SIGKILL and self._oom is not None:
                    report.why = self._oom.verdict()
                self.worker.end, self.worker.why = (report.status, report.time_ns), report.why
                self._oom = None
        self._tell(report)

    def _start(self, order: Start) -> None:
        name = order.name
        self._note_order(order)
        # A scheduler that preempts the job may signal all of its processes. With a grace agents see
        # to the end, and workers go on until then; ignored here: see starter.py.
        preemptible = signal.getsignal(signal.SIGTERM) == signal.SIG_IGN and bool(
            order.env.get("HOROVOD_FT_GRACE_SECONDS")
        )

        def begin() -> None:
            begin_child()
            if order.end_seconds > 0:
                signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)
            if name == WORKER:
                bind_worker(order.env)
                if preemptible:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)

        try:
            child = subprocess.Popen(
                order.argv,
                env=order.env,
                cwd=order.cwd,
                stdout=self._relay.ends[0],
                stderr=self._relay.ends[1],
                start_new_session=True,
                # Threads of the shim (output_file.py) have no lock that this needs.
                preexec_fn=begin,  # noqa: PLW1509
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # An OSError names the file, which may be the working directory.
            self._report(Refused(name, f"cannot start {order.argv[0]}: {error}"))
            return
        self._children[name] = child
        if order.end_seconds > 0:
            self._end_seconds[name] = order.end_seconds
        self._report(Started(name, child.pid, time.monotonic_ns(), spare=False))

    def _note_order(self, order: Start) -> None:
        if order.name == WORKER:
            self.worker = FoundWorker(int(order.env.get("HOROVOD_FT_INCARNATION", 0)))

    def _take_spare(self, order: Start, directory: str) -> bool:
        """Turns a spare into the worker; False if no spare fits."""
        self._taken = TakenSpare.take(directory, order.argv, order.env, order.cwd, self._relay.ends)
        if self._taken is None:
            return False
        self._watch = self._loop.watch(self._taken, self._on_taken)
        self._note_order(order)
        self._report(Started(WORKER, self._taken.pid, self._taken.started_ns, spare=True))
        return True

    def _on_taken(self) -> None:
        """Reads the spare shim's report on the worker that was a spare."""
        assert self._taken is not None
        if (end := self._taken.ended()) is not None:
            self._watch.end()
            pid, self._taken = self._taken.pid, None
            status, time_ns = end
            self._relay.flush(unfinished=True)
            self._report(Exited(WORKER, pid, status, time_ns))

    def _kill_descendants(self, spared: set[int]) -> None:
        if unkillable := kill_descendants(self._reap, spared):
            self._tell(Unkillable(unkillable))

    def _reap(self) -> set[str]:
        """Reaps all dead processes; returns and reports those that the agent knows by name."""
        names = set()
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0] != 0:
                pid, status = reaped
                self._left.discard(pid)
                for name in [name for name, child in self._children.items() if child.pid == pid]:
                    # Popen must not wait for a process that is already reaped.
                    self._children.pop(name).returncode = os.waitstatus_to_exitcode(status)
                    # Its output goes before the report of its end.
                    self._relay.flush(unfinished=name == WORKER)
                    self._report(Exited(name, pid, status, time.monotonic_ns()))
                    names.add(name)
        return names
