"""The nursery: the small process that starts an agent's processes and buries them.

The agent forks it before MPI is initialised (forking later is unsafe with RDMA providers) and
gives it orders over a socketpair. It lives in a session of its own, so it outlives an agent that
Hydra kills together with the agent's session: the socket then ends, and the nursery kills what it
started, clears the job directory if it is the last one there, and goes. It is a subreaper, so all
that its children leave behind, even in sessions of their own, comes to it.

A worker can be a warm spare: then the spare's holder (spare_holder.py) is its parent and buries it,
and the nursery passes orders and reports on.

Orders:    job(dir)   start(name, argv, env, cwd, spare)   go   kill(name, signal)
           limit(seconds, text)
Reports:   started(name, pid, time_ns, spare)   refused(name, error)
           exited(name, pid, status, time_ns)   stubborn(pids)
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import NoReturn

from hvd_ft import mpi_files, native
from hvd_ft.burial import bury
from hvd_ft.channel import Channel, Message
from hvd_ft.child import begin_child
from hvd_ft.jobdir import JobDirectory
from hvd_ft.taken_spare import TakenSpare

WORKER = "worker"
SPARES = "spares"  # the keeper of warm spares
_FAMILIES = {WORKER, SPARES}  # when a process of these names dies, what it left behind is killed


class NurseryProcess:
    """The agent's handle on its nursery.

    Attributes:
        pid: of the nursery.
        channel: where its reports come in.
    """

    def __init__(self, pid: int, channel: Channel) -> None:
        self.pid = pid
        self.channel = channel

    @classmethod
    def fork(cls) -> "NurseryProcess":
        """Forks the nursery; call it while the process has one thread and no MPI."""
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _live(theirs)
        theirs.close()
        return cls(pid, Channel(ours))

    def watch_job(self, directory: str) -> None:
        """Has the nursery lock the job's directory, and clear it at the end if it is the last."""
        self._order({"do": "job", "dir": directory})

    def start(
        self, name: str, argv: list[str], env: dict[str, str], cwd: str, spare: bool = False
    ) -> None:
        """Starts a process in a session of its own; `started` or `refused` will be reported.

        With `spare` a warm spare becomes this process, if the job has one.
        """
        order = {"do": "start", "name": name, "argv": argv, "env": env, "cwd": cwd, "spare": spare}
        self._order(order)

    def go(self) -> None:
        """Has a worker begin that was reported as a spare: not before everybody knows of it."""
        self._order({"do": "go"})

    def kill(self, name: str, number: int) -> None:
        """Sends a signal to the process group of that name, if it still runs."""
        self._order({"do": "kill", "name": name, "signal": number})

    def limit(self, seconds: float, text: str) -> None:
        """Has the nursery say `text` and kill the agent unless `unlimit` comes within the time.

        A thread of the agent could not: MPI_Init and MPI_Finalize hold Python's lock.
        """
        self._order({"do": "limit", "seconds": seconds, "text": text})

    def unlimit(self) -> None:
        """Ends what `limit` began."""
        self._order({"do": "limit", "seconds": None, "text": ""})

    def _order(self, message: Message) -> None:
        # Of a dead nursery the agent learns by the end of what it receives.
        with contextlib.suppress(OSError):
            self.channel.send(message)

    def end(self, timeout_seconds: float) -> bool:
        """Ends the nursery and everything it has started.

        Returns:
            Whether it has ended in time.
        """
        self.channel.close()
        pidfd = os.pidfd_open(self.pid)
        try:
            ended, _, _ = select.select([pidfd], [], [], timeout_seconds)
        finally:
            os.close(pidfd)
        if ended:
            os.waitpid(self.pid, 0)
        return bool(ended)


def _live(end: socket.socket) -> NoReturn:
    """The life of the nursery process; never returns to the agent's code."""
    code = 1
    try:
        os.setsid()
        _close_descriptors(keep=end.fileno())
        native.become_subreaper()
        _Nursery(Channel(end)).run()
        code = 0
    except Exception as error:  # the agent sees the socket end; this says why
        print(f"hvdft: the nursery failed: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _close_descriptors(keep: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if (descriptor := int(name)) > 2 and descriptor != keep:
            with contextlib.suppress(OSError):
                os.close(descriptor)


class _Nursery:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._taken: TakenSpare | None = None  # the worker, if it was a spare
        self._job: JobDirectory | None = None
        self._agent = os.getppid()
        self._limit: tuple[float, str] | None = None  # when on time.monotonic's clock, what to say
        # SIGCHLD writes to this pipe: it tells of orphans too, which have no pidfd of ours.
        self._deaths, alarm = os.pipe()
        os.set_blocking(self._deaths, False)
        os.set_blocking(alarm, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def run(self) -> None:
        """Follows the agent's orders until the agent is gone, then ends everything."""
        try:
            while self._one_round():
                pass
        finally:
            if self._taken is not None:
                self._taken.end()
            self._bury(spared=set())
            if self._job is not None:
                self._job.leave()
            mpi_files.sweep()  # an agent that was killed in MPI_Init may have left one

    def _one_round(self) -> bool:
        left = None if self._limit is None else max(0.0, self._limit[0] - time.monotonic())
        sources = [self._deaths, self._channel.fileno()]
        if self._taken is not None:
            sources.append(self._taken.fileno())
        ready, _, _ = select.select(sources, [], [], left)
        if self._limit and not ready:
            self._end_agent(self._limit[1])
        if self._deaths in ready and _FAMILIES & self._reap():
            self._bury({child.pid for child in self._children.values()})
        if self._taken is not None and self._taken.fileno() in ready:
            self._hear_of_taken(self._taken)
        if self._channel.fileno() in ready:
            messages = self._channel.receive()
            if messages is None:
                return False
            for message in messages:
                self._follow(message)
        return True

    def _follow(self, message: Message) -> None:
        if message["do"] == "job":
            self._job = JobDirectory.join(message["dir"])
        elif message["do"] == "start":
            if not (message["spare"] and self._take_spare(message)):
                self._start(message["name"], message["argv"], message["env"], message["cwd"])
        elif message["do"] == "limit":
            seconds = message["seconds"]
            self._limit = seconds and (time.monotonic() + seconds, message["text"])
        elif message["do"] == "go" and self._taken:
            self._taken.go()
        elif message["do"] == "kill" and self._taken and message["name"] == WORKER:
            self._taken.kill(message["signal"])
        elif message["do"] == "kill" and message["name"] in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._children[message["name"]].pid, message["signal"])

    def _end_agent(self, text: str) -> None:
        self._limit = None
        if os.getppid() == self._agent:
            print(f"hvdft: {text}", file=sys.stderr, flush=True)
            os.kill(self._agent, signal.SIGKILL)  # the socket's end tells us when it is gone

    def _start(self, name: str, argv: list[str], env: dict[str, str], cwd: str) -> None:
        try:
            child = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=begin_child,  # noqa: PLW1509  (the nursery has one thread)
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # An OSError names the file, which may be the working directory.
            text = f"cannot start {argv[0]}: {error}"
            self._report({"report": "refused", "name": name, "error": text})
            return
        self._children[name] = child
        self._report(
            {
                "report": "started",
                "name": name,
                "pid": child.pid,
                "spare": False,
                "time_ns": time.monotonic_ns(),
            }
        )

    def _take_spare(self, order: Message) -> bool:
        """Has a spare become the worker; False if there is none that fits."""
        assert self._job is not None
        self._taken = TakenSpare.take(self._job.path, order["argv"], order["env"], order["cwd"])
        if self._taken is None:
            return False
        started = {"report": "started", "name": WORKER, "pid": self._taken.pid, "spare": True}
        self._report({**started, "time_ns": self._taken.started_ns})
        return True

    def _hear_of_taken(self, taken: TakenSpare) -> None:
        if (end := taken.ended()) is not None:
            self._taken = None
            status, time_ns = end
            exited = {"report": "exited", "name": WORKER, "pid": taken.pid, "status": status}
            self._report({**exited, "time_ns": time_ns})

    def _report(self, message: Message) -> None:
        # Without an agent nobody wants to know; the end of the socket is seen by receive().
        with contextlib.suppress(OSError):
            self._channel.send(message)

    def _bury(self, spared: set[int]) -> None:
        if stubborn := bury(self._reap, spared):
            self._report({"report": "stubborn", "pids": stubborn})

    def _reap(self) -> set[str]:
        """Reaps all that has died; returns and reports those that the agent knows by name."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._deaths, 4096)
        names = set()
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0] != 0:
                pid, status = reaped
                for name in [name for name, child in self._children.items() if child.pid == pid]:
                    # Popen must not wait for a process that is reaped.
                    self._children.pop(name).returncode = os.waitstatus_to_exitcode(status)
                    self._report(
                        {
                            "report": "exited",
                            "name": name,
                            "pid": pid,
                            "status": status,
                            "time_ns": time.monotonic_ns(),
                        }
                    )
                    names.add(name)
        return names
