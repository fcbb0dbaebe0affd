"""The record of one rank in the arena and the report: its agent publishes there, and reads it."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hvd_ft import native
from hvd_ft.agent import actions as do
from hvd_ft.agent.event_watch import JobNews
from hvd_ft.agent.op_trace import OpTrace
from hvd_ft.agent.report_writer import Journal
from hvd_ft.agent.supervisor import Past, WorkerFacts
from hvd_ft.job.placement import Nodes
from hvd_ft.native.types import Event, EventType, State, Status
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.say import say


class RankRecord:
    """The record of the rank whose agent this is.

    Args:
        rank: its number.
        agent: its side of the core, with its engine started.
        observer: of the job.
        nodes: the members of the ring.
        journal: writes the events of the whole job; None on all ranks but one.
        send: sends a note to the agent that has the journal.
    """

    def __init__(
        self,
        rank: int,
        agent: native.Agent,
        observer: native.Observer,
        *,
        nodes: Nodes,
        journal: Journal | None,
        send: Callable[[dict[str, Any]], None],
    ) -> None:
        self._rank = rank
        self._agent = agent
        self._observer = observer
        self._nodes = nodes
        self._journal = journal
        self._send = send
        self._events_seen = 0
        self._said_why = False
        self._op_trace: OpTrace | None = None

    def publish(self, action: do.NoteStarted | do.NoteFailed | do.NoteCause | do.NoteDone) -> None:
        """Publishes the worker's fate, in the arena or in the report."""
        match action:
            case do.NoteStarted(incarnation, pid):
                self._agent.started(incarnation, pid)
            case do.NoteFailed(status):
                self._agent.failed(status)
            case do.NoteCause(incarnation, text):
                self.note("CAUSE", incarnation, text)
            case do.NoteDone(status):
                self._agent.done(status)

    def note(
        self,
        kind: str,
        incarnation: int,
        text: str,
        rank: int | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds a note on a worker to the report, which the agent of rank 0 writes.

        Args:
            kind: one of `NOTES` of the report.
            incarnation: of the worker.
            text: of the note.
            rank: of the worker; None: this one.
            more: further fields.
        """
        whose = {"rank": self._rank if rank is None else rank, "incarnation": incarnation}
        note = {"type": kind, "time_ns": time.monotonic_ns(), **whose, "text": text, **(more or {})}
        if self._journal:
            self._journal.note(note)
        else:
            self._send(note)

    def take_note(self, note: Mapping[str, Any]) -> None:
        """Writes a note of another agent, with its time on this host's clock."""
        if self._journal is None:
            return
        if note.get("rank") in range(self._observer.size):
            first = self._nodes.firsts[self._nodes.node_of(note["rank"])]
            note = {**note, "time_ns": note["time_ns"] + self._observer.clock_ahead_ns(first)}
        self._journal.note(note)

    def trace_ops(self, loop: EventLoop, *, late: bool) -> None:
        """Has this node's single ops in the report from now on; adds them if this agent writes it.

        Args:
            loop: of the agent.
            late: whether agents of an older generation have written before.
        """
        self._agent.trace_ops()
        if self._journal:
            firsts = self._nodes.firsts if len(self._nodes) > 1 else ()
            write = self._journal.note
            self._op_trace = OpTrace(self._observer, firsts, write=write, say=say, late=late)
            self._op_trace.follow(loop)

    def finish_trace(self) -> None:
        """Adds the last ops of all nodes, if this agent traces them."""
        if self._op_trace:
            self._op_trace.finish()

    def news(self) -> JobNews:
        """Returns what becomes readable when there are new events."""
        return JobNews(self._agent)

    def new_events(self) -> Sequence[Event]:
        """Returns the job's events since the last call, which are in the report then."""
        events = self._observer.events(self._events_seen)
        self._events_seen += len(events)
        if self._journal:
            self._journal.follow()
        return events

    def past(self) -> tuple[Past, Status]:
        """Returns what the agents of older generations have published; no event of it is new."""
        past = self._observer.events()
        self._events_seen = len(past)
        if self._journal:
            self._journal.resume()
        mine = [event for event in past if event.rank == self._rank]
        attached = [e.incarnation for e in mine if e.type is EventType.ATTACHED]
        failed = [e.time_ns for e in mine if e.type is EventType.FAILED]
        status = self.status  # once: the worker may be changing it
        away = status.since_ns if status.state is State.RESTARTING else 0
        return Past(max(attached, default=-1), failed, away), status

    @property
    def status(self) -> Status:
        """The rank's present state."""
        return self._observer.status(self._rank)

    def worker_facts(self) -> WorkerFacts:
        """Returns what the arena says about the worker."""
        watch = self._observer.watch(self._rank)
        return WorkerFacts(
            step=watch.step,
            executed=watch.executed,
            contributed=watch.contributed,
            orderly=self._agent.worker_ended_orderly(),
            last_words=self._agent.last_words(),
        )

    def stop_job(self, code: int, message: str) -> None:
        """Has the job stopped, unless it is already.

        Args:
            code: the job's exit code.
            message: why, for the user.
        """
        self._agent.fatal(code, message)

    @property
    def stop_code(self) -> int:
        """The exit code with which the job was stopped; 0 if it was not."""
        return self.stop[1] if self.stop else 0

    @property
    def stop(self) -> tuple[str, int, int] | None:
        """Why the job was stopped, with its exit code, and by which rank; None if it was not."""
        return self._agent.fatal_text()

    def say_why_stopped(self) -> None:
        """Prints why the job was stopped, once, if this rank has stopped it."""
        stop = self._agent.fatal_text()
        if stop and stop[2] == self._rank and not self._said_why:
            self._said_why = True
            say(stop[0])
