"""The agent that a shim serves: its channel, its heartbeats, its limit, and its end.

An agent that is stopped is killed (beats.py), and so is one that overruns the limit that it has set
itself. Then, as after any other death, its channel ends. When the agent of the next generation
takes its place, nothing holds any more that was expected of the older one.
"""

import contextlib
import os
import signal
from collections.abc import Callable

from hvd_ft.job.beats import Beats
from hvd_ft.job.lifeline_messages import NodeFacts
from hvd_ft.shim import messages
from hvd_ft.shim.messages import Order, Report
from hvd_ft.system.channel import Channel
from hvd_ft.system.event_loop import EventLoop, Watch
from hvd_ft.system.oom import OomWatch
from hvd_ft.system.pidfd import has_ended, send_signal
from hvd_ft.system.say import say

_DEATH_SECONDS = 5.0  # limit for an agent to die of SIGKILL
_NEVER = float("inf")


class ServedAgent:
    """The present agent; for a time there may be none.

    Args:
        loop: keeps it going.
        on_order: called with each of its orders.
        on_gone: called when its channel has ended by itself.

    Attributes:
        pid: its process id, for messages and drills.
        facts: its latest counts; None: it has sent none.
    """

    def __init__(
        self, loop: EventLoop, on_order: Callable[[Order], None], on_gone: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._on_order = on_order
        self._on_gone = on_gone
        self._channel: Channel | None = None  # None: there is no agent
        self._watch: Watch | None = None  # of the channel
        self.pid = 0
        self._process: int | None = None  # its pidfd; None: it has ended
        self._memory: OomWatch | None = None
        self._rank = 0
        self._beats: Beats | None = None
        self._beats_rest = False  # as it has been stopped by this shim
        self.facts: NodeFacts | None = None
        self._held: list[Order] = []  # until processes may act
        self._limit_text = ""
        self._limit = loop.timer(lambda: self._kill(self._limit_text))
        self._look = loop.timer(self._look_for_beats)

    def serve(self, channel: Channel, pid: int, process: int) -> None:
        """Serves an agent from now on: the first one, or the next after `end`.

        Args:
            channel: to it. If the agent is dead by now, the end of its channel tells us next.
            pid: its process id.
            process: its pidfd.
        """
        self.pid, self._process = pid, process
        self._memory = OomWatch(pid, self._loop.now())
        self._channel = channel
        self._watch = self._loop.watch(channel, lambda: self._hear(channel))

    def report(self, report: Report) -> None:
        """Sends it a report; if it is dead, the end of its channel says so."""
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send(messages.to_wire(report))

    def _hear(self, channel: Channel) -> None:
        wires = channel.receive()
        for wire in wires or ():
            self._on_order(messages.parse_order(wire))
        if wires is None:
            self._forget()
            self._on_gone()

    def _forget(self) -> None:
        """Expects nothing more of an agent whose channel ends: the next one begins anew."""
        assert self._watch is not None
        self._watch.end()
        self._channel = self._beats = self.facts = None
        self._held = []
        self._limit.clear()

    # -------------------------------------------------------------- its life

    def expect_beats(self, rank: int, lease_seconds: float) -> None:
        """Watches it from its first beat on.

        Args:
            rank: of it, for messages.
            lease_seconds: how long it may be silent.
        """
        self._rank = rank
        self._beats = Beats(lease_seconds)

    def expect_no_beats(self) -> None:
        """Watches it no more."""
        self._beats = None

    def beat(self, facts: NodeFacts | None) -> None:
        """Notes its heartbeat, with its counts."""
        self.facts = facts
        if self._beats:
            self._beats.heard(self._loop.now())
            self._look.set(self._beats.look_at)
        assert self._memory is not None
        self._memory.look()

    def set_limit(self, seconds: float | None, text: str) -> None:
        """Prints the text and kills it when the time is over; None: no limit any more."""
        self._limit_text = text
        self._limit.set(self._loop.now() + seconds if seconds else _NEVER)
        if self._beats:
            self._beats.stop()  # it is in MPI, which holds Python's lock

    def _look_for_beats(self) -> None:
        if self._beats is None:
            return
        if self._beats.is_silent(self._loop.now()):
            self._beats.stop()
            self._kill(
                f"the agent of rank {self._rank} (pid {self.pid}) is stopped: it has not "
                "answered for the time of HOROVOD_FT_LEASE_SECONDS; killed"
            )
        self._look.set(self._beats.look_at)

    # -------------------------------------------------------------- its end

    def living(self) -> int | None:
        """Returns its process id; None if it is dead."""
        if self._process is None or has_ended(self._process):
            return None
        return self.pid

    def lack(self) -> str:
        """Returns why it was killed, if it was for lack of memory; else ""."""
        return self._memory.verdict() if self._memory is not None else ""

    def end(self) -> None:
        """Makes sure that it, if still alive, does not touch the arenas any more."""
        if self._process is None:
            return
        send_signal(self._process, signal.SIGKILL)
        has_ended(self._process, _DEATH_SECONDS)
        os.close(self._process)
        self._process = None
        if self._channel is not None:
            channel = self._channel
            self._forget()
            channel.close()  # not earlier: it would start another shim

    def _kill(self, why: str) -> None:
        say(why)
        if self._process is not None:
            send_signal(self._process, signal.SIGKILL)  # the channel's end tells us

    # -------------------------------------------------------------- fence

    def hold(self, order: Order) -> None:
        """Keeps an order of it until processes may act."""
        self._held.append(order)

    def stopped(self) -> None:
        """Expects no beats while it is stopped by this shim."""
        if self._beats and self._beats.look_at < _NEVER:
            self._beats.stop()
            self._beats_rest = True

    def may_act(self) -> None:
        """Expects beats again, and gives the orders that were held."""
        if self._beats and self._beats_rest:
            self._beats.heard(self._loop.now())
            self._look.set(self._beats.look_at)
        self._beats_rest = False
        held, self._held = self._held, []
        for order in held:
            self._on_order(order)
