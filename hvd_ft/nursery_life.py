"""The nursery: the small process that starts an agent's processes and buries them.

It lives in a session of its own, so it outlives an agent that is killed, or that Hydra kills
together with the agent's session: the agent's socket then ends. If it has been told to keep, it
lets its processes live and waits for an agent of the next generation (adoption.py), for a limited
time and as long as the launcher lives (launcher_watch.py). Otherwise it kills what it started,
clears the job directory if it is the last one there, and goes. It is a subreaper, so all that its
children leave behind, even in sessions of their own, comes to it.

A worker can be a warm spare: then the spare's holder (spare_holder.py) is its parent and buries it,
and the nursery passes orders and reports on.

Orders:    job(dir)   start(name, argv, env, cwd, spare)   go   kill(name, signal)
           limit(seconds, text)   keep(rank, generation, launcher, seconds)
           release(exit_code)   end
Reports:   started(name, pid, time_ns, spare)   refused(name, error)
           exited(name, pid, status, time_ns)   stubborn(pids)
           adopted(nursery, worker, running)    as the first one to a new agent
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
from hvd_ft.adoption import Cradle
from hvd_ft.burial import bury
from hvd_ft.channel import Channel, Message
from hvd_ft.child import begin_child
from hvd_ft.drills import AGENT_DIES, MPIRUN_DIES
from hvd_ft.jobdir import JobDirectory
from hvd_ft.launcher_watch import LauncherWatch
from hvd_ft.launchers import strike
from hvd_ft.output_relay import OutputRelay
from hvd_ft.peer import peer_of
from hvd_ft.pinning import pin
from hvd_ft.taken_spare import TakenSpare

WORKER = "worker"
SPARES = "spares"  # the keeper of warm spares
_FAMILIES = {WORKER, SPARES}  # when a process of these names dies, what it left behind is killed
_DEATH_SECONDS = 5.0  # for an agent to die of SIGKILL
_DRILLS = {AGENT_DIES, MPIRUN_DIES}
_NEVER = float("inf")


def live(end: socket.socket) -> NoReturn:
    """The life of the nursery process; never returns to the agent's code."""
    code = 1
    try:
        os.setsid()
        _close_descriptors(keep=end.fileno())
        native.become_subreaper()
        _Nursery(Channel(end), os.getppid()).run()
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
    def __init__(self, channel: Channel, agent: int) -> None:
        self._channel: Channel | None = channel  # None: there is no agent
        self._agent_pid = agent
        self._agent = os.pidfd_open(agent)
        self._relay = OutputRelay()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._taken: TakenSpare | None = None  # the worker, if it was a spare
        self._worker: Message | None = None  # what the next agent has to know of the latest one
        self._job: JobDirectory | None = None
        self._cradle: Cradle | None = None
        self._launcher: LauncherWatch | None = None  # if it is to wait for a next agent
        self._over = False
        # The times are time.monotonic()'s.
        self._limit: tuple[float, str] | None = None  # and what to say
        self._adopted_by = _NEVER
        # SIGCHLD writes to this pipe: it tells of orphans too, which have no pidfd of ours.
        self._deaths, alarm = os.pipe()
        os.set_blocking(self._deaths, False)
        os.set_blocking(alarm, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        self._drills: set[int] = set()
        for number in (signal.SIGCHLD, *_DRILLS):
            signal.signal(number, lambda number, frame: None)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def run(self) -> None:
        """Follows agents' orders until the job is over or nobody comes, then ends everything."""
        try:
            while not self._over:
                self._one_round()
        finally:
            if self._taken is not None:
                self._taken.end()
            self._bury(spared=set())
            self._relay.flush()
            if self._job is not None:
                self._job.leave()
            mpi_files.sweep()  # an agent that was killed in MPI_Init may have left one

    def _one_round(self) -> None:
        readers, writers = self._relay.waits_for()
        line = self._launcher.line if self._launcher else None
        sources = [self._channel, self._taken, self._cradle, line]
        readers += [self._deaths, *(source.fileno() for source in sources if source is not None)]
        ready = set(select.select(readers, writers, [], self._seconds_left())[0])
        self._check_deadlines()
        self._relay.move()
        if self._deaths in ready and _FAMILIES & self._reap():
            self._bury({child.pid for child in self._children.values()})
        while self._drills:
            strike(self._drills.pop(), self._agent_pid)
        if self._taken is not None and self._taken.fileno() in ready:
            self._hear_of_taken(self._taken)
        if self._channel is not None and self._channel.fileno() in ready:
            self._hear_agent(self._channel)
        if self._cradle is not None and self._cradle.fileno() in ready:
            self._hear_new_agent(self._cradle)
        if self._launcher is not None and line is not None and line.fileno() in ready:
            self._look_after_launcher(self._launcher)

    # -------------------------------------------------------------- time

    def _seconds_left(self) -> float | None:
        deadlines = [
            self._adopted_by,
            self._relay.lost_at,
            *([self._limit[0]] if self._limit else []),
            *([self._launcher.look_at] if self._launcher else []),
        ]
        first = min(deadlines)
        return None if first == _NEVER else max(0.0, first - time.monotonic())

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        if self._limit and self._limit[0] <= now:
            text, self._limit = self._limit[1], None
            print(f"hvdft: {text}", file=sys.stderr, flush=True)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._agent, signal.SIGKILL)  # the socket's end tells us
        if self._relay.lost_at <= now:
            self._relay.give_up()
        if self._launcher and self._launcher.look_at <= now:
            self._look_after_launcher(self._launcher)
        self._over |= self._adopted_by <= now

    # -------------------------------------------------------------- agents

    def _hear_agent(self, agent: Channel) -> None:
        messages = agent.receive()
        for message in messages or ():
            self._follow(message)
        if messages is None:
            self._channel = None
            self._limit = None
            self._over |= self._launcher is None
            if self._launcher:
                self._relay.detach()
                self._adopted_by = time.monotonic() + self._launcher.adoption_seconds
                self._launcher.say(orphaned=True)

    def _follow(self, message: Message) -> None:
        if message["do"] == "job":
            self._job = JobDirectory.join(message["dir"])
        elif message["do"] == "keep":
            self._keep(message)
        elif message["do"] == "release":
            if self._launcher:
                self._launcher.say(orphaned=False, exit_code=message["exit_code"])
            self._launcher = None
        elif message["do"] == "end":
            self._over = True
        elif message["do"] == "start":
            if not (message["spare"] and self._take_spare(message)):
                self._start(message)
        elif message["do"] == "limit":
            seconds = message["seconds"]
            self._limit = seconds and (time.monotonic() + seconds, message["text"])
        elif message["do"] == "go" and self._taken and not self._taken.begun:
            self._taken.go()
        elif message["do"] == "kill" and self._taken and message["name"] == WORKER:
            self._taken.kill(message["signal"])
        elif message["do"] == "kill" and message["name"] in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._children[message["name"]].pid, message["signal"])

    def _keep(self, order: Message) -> None:
        assert self._job is not None
        rank, address = order["rank"], order["launcher"]
        try:
            self._launcher = LauncherWatch(address, rank, order["generation"], order["seconds"])
        except OSError as error:
            print(
                f"hvdft: rank {rank} cannot reach the launcher at {address.rsplit(':', 1)[0]} "
                f"({error}): if an agent dies the job ends; let that host name lead to the host "
                "where hvdft run was started",
                file=sys.stderr,
                flush=True,
            )
            return
        self._cradle = Cradle(self._job.path, rank)

    def _hear_new_agent(self, cradle: Cradle) -> None:
        received = cradle.receive()
        if received is None:
            return
        connection, order, streams = received
        os.close(streams[0])
        # After `release` the job is over, and before `keep` nobody can connect.
        if not self._launcher or order["generation"] <= self._launcher.generation:
            connection.close()
            for stream in streams[1:]:
                os.close(stream)
            return
        self._end_agent()
        self._agent_pid = peer_of(connection).pid
        self._agent = os.pidfd_open(self._agent_pid)
        self._channel = Channel(connection)
        self._adopted_by = _NEVER
        self._launcher.generation = order["generation"]
        self._launcher.say(orphaned=False)
        self._relay.attach(streams[1:])
        if self._worker is not None and self._taken is not None:
            self._worker["begun"] = self._taken.begun
        adopted = {"report": "adopted", "nursery": os.getpid(), "worker": self._worker}
        self._report({**adopted, "running": list(self._children)})

    def _look_after_launcher(self, launcher: LauncherWatch) -> None:
        if launcher.is_dead():
            self._end_agent()  # or it might hold the job's directory when we leave
            self._over = True

    def _end_agent(self) -> None:
        """Sees to it that an older agent, if it still lives, touches the arenas no more."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._agent, signal.SIGKILL)
        select.select([self._agent], [], [], _DEATH_SECONDS)
        os.close(self._agent)
        if self._channel is not None:
            self._channel.close()  # not before: it would take us for dead, and stop the job

    def _report(self, message: Message) -> None:
        if message.get("name") == WORKER:
            self._note_worker(message)
        # Of the agent's death we learn by the end of its socket.
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(message)

    def _note_worker(self, report: Message) -> None:
        assert self._worker is not None
        if report["report"] == "started":
            self._worker["pid"] = report["pid"]
        elif report["report"] == "refused":
            self._worker["refused"] = report["error"]
        else:
            self._worker["end"] = [report["status"], report["time_ns"]]

    # -------------------------------------------------------------- children

    def _start(self, order: Message) -> None:
        name = order["name"]
        self._note_order(order)

        def begin() -> None:
            begin_child()
            if name == WORKER:
                pin(order["env"])

        try:
            child = subprocess.Popen(
                order["argv"],
                env=order["env"],
                cwd=order["cwd"],
                stdout=self._relay.ends[0],
                stderr=self._relay.ends[1],
                start_new_session=True,
                preexec_fn=begin,  # noqa: PLW1509  (the nursery has one thread)
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # An OSError names the file, which may be the working directory.
            text = f"cannot start {order['argv'][0]}: {error}"
            self._report({"report": "refused", "name": name, "error": text})
            return
        self._children[name] = child
        started = {"report": "started", "name": name, "pid": child.pid, "spare": False}
        self._report({**started, "time_ns": time.monotonic_ns()})

    def _note_order(self, order: Message) -> None:
        if order["name"] == WORKER:
            incarnation = int(order["env"].get("HOROVOD_FT_INCARNATION", 0))
            self._worker = {"incarnation": incarnation, "pid": 0, "begun": True}

    def _take_spare(self, order: Message) -> bool:
        """Has a spare become the worker; False if there is none that fits."""
        assert self._job is not None
        self._taken = TakenSpare.take(
            self._job.path, order["argv"], order["env"], order["cwd"], self._relay.ends
        )
        if self._taken is None:
            return False
        self._note_order(order)
        started = {"report": "started", "name": WORKER, "pid": self._taken.pid, "spare": True}
        self._report({**started, "time_ns": self._taken.started_ns})
        return True

    def _hear_of_taken(self, taken: TakenSpare) -> None:
        if (end := taken.ended()) is not None:
            self._taken = None
            status, time_ns = end
            self._relay.flush()
            exited = {"report": "exited", "name": WORKER, "pid": taken.pid, "status": status}
            self._report({**exited, "time_ns": time_ns})

    def _bury(self, spared: set[int]) -> None:
        if stubborn := bury(self._reap, spared):
            self._report({"report": "stubborn", "pids": stubborn})

    def _reap(self) -> set[str]:
        """Reaps all that has died; returns and reports those that the agent knows by name."""
        with contextlib.suppress(BlockingIOError):
            self._drills |= _DRILLS & set(os.read(self._deaths, 4096))
        names = set()
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0] != 0:
                pid, status = reaped
                for name in [name for name, child in self._children.items() if child.pid == pid]:
                    # Popen must not wait for a process that is reaped.
                    self._children.pop(name).returncode = os.waitstatus_to_exitcode(status)
                    self._relay.flush()  # what it said before what is said of it
                    exited = {"report": "exited", "name": name, "pid": pid, "status": status}
                    self._report({**exited, "time_ns": time.monotonic_ns()})
                    names.add(name)
        return names
