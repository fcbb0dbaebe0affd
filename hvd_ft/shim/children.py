"""The processes of one shim: the worker, the spare manager, hook commands.

They have names. When one of a family's names dies, what it has left behind is killed too.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable

from hvd_ft.job.pinning import pin
from hvd_ft.shim.output_relay import OutputRelay
from hvd_ft.spares.taken_spare import TakenSpare
from hvd_ft.system.channel import Message
from hvd_ft.system.child import begin_child
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.reaper import kill_descendants

WORKER = "worker"
SPARES = "spares"  # the spare manager
_FAMILIES = {WORKER, SPARES}


class Children:
    """What a shim has started and not yet reaped.

    Args:
        loop: tells what becomes of a spare.
        relay: where their output goes.
        report: tells the agent what becomes of them.

    Attributes:
        worker: what the next agent has to know of the latest worker; None: there was none.
    """

    def __init__(
        self, loop: EventLoop, relay: OutputRelay, report: Callable[[Message], None]
    ) -> None:
        self._loop = loop
        self._relay = relay
        self._tell = report
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._taken: TakenSpare | None = None  # the worker, if it was a spare
        self.worker: Message | None = None

    @property
    def names(self) -> list[str]:
        """Of those that run, but for a worker that was a spare."""
        return list(self._children)

    def start(self, order: Message, directory: str | None) -> None:
        """Starts a process, or has a spare become it.

        Args:
            order: `name`, `argv`, `env`, `cwd`, and `spare`: whether it may be one.
            directory: of the job, where spares are found.
        """
        if not (order["spare"] and directory and self._take_spare(order, directory)):
            self._start(order)

    def go(self) -> None:
        """Has a worker begin that was a spare."""
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

    def found(self) -> Message:
        """Returns the first report to a new agent."""
        if self.worker is not None and self._taken is not None:
            self.worker["begun"] = self._taken.begun
        return {
            "report": "reattached",
            "shim": os.getpid(),
            "worker": self.worker,
            "running": self.names,
        }

    def reap(self) -> None:
        """Reaps and reports what has died, and kills what families have left."""
        if _FAMILIES & self._reap():
            self._kill_descendants({child.pid for child in self._children.values()})

    def end(self) -> None:
        """Ends all of them."""
        if self._taken is not None:
            self._taken.end()
        self._kill_descendants(spared=set())

    def _report(self, message: Message) -> None:
        if message.get("name") == WORKER:
            self._note_worker(message)
        self._tell(message)

    def _note_worker(self, report: Message) -> None:
        assert self.worker is not None
        if report["report"] == "started":
            self.worker["pid"] = report["pid"]
        elif report["report"] == "refused":
            self.worker["refused"] = report["error"]
        else:
            self.worker["end"] = [report["status"], report["time_ns"]]

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
                preexec_fn=begin,  # noqa: PLW1509  (the shim has one thread)
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
            self.worker = {"incarnation": incarnation, "pid": 0, "begun": True}

    def _take_spare(self, order: Message, directory: str) -> bool:
        """Has a spare become the worker; False if there is none that fits."""
        self._taken = TakenSpare.take(
            directory, order["argv"], order["env"], order["cwd"], self._relay.ends
        )
        if self._taken is None:
            return False
        self._watch = self._loop.watch(self._taken, self._on_taken)
        self._note_order(order)
        started = {"report": "started", "name": WORKER, "pid": self._taken.pid, "spare": True}
        self._report({**started, "time_ns": self._taken.started_ns})
        return True

    def _on_taken(self) -> None:
        """Reads what the spare shim says of the worker that was a spare."""
        assert self._taken is not None
        if (end := self._taken.ended()) is not None:
            self._watch.end()
            pid, self._taken = self._taken.pid, None
            status, time_ns = end
            self._relay.flush()
            exited = {"report": "exited", "name": WORKER, "pid": pid, "status": status}
            self._report({**exited, "time_ns": time_ns})

    def _kill_descendants(self, spared: set[int]) -> None:
        if unkillable := kill_descendants(self._reap, spared):
            self._tell({"report": "unkillable", "pids": unkillable})

    def _reap(self) -> set[str]:
        """Reaps all that has died; returns and reports those that the agent knows by name."""
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
