"""Turns the events of a run into facts, and facts into tables.

Everything up to the tables is a pure function of the list of events.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from hvd_ft.errors import HvdFtError
from hvd_ft.job.report_lines import NOTES, SCHEMA
from hvd_ft.native.types import Divergence, Event, EventType, State
from hvd_ft.reports.facts import (
    CauseFacts,
    EventFacts,
    Facts,
    OpsFacts,
    RankFacts,
    ReplacementFacts,
    SlowFacts,
    StacksFacts,
)
from hvd_ft.system.json_text import read_json
from hvd_ft.system.wire import convert

NS = 1e9
PARTS = ("detect", "process start", "import", "restore", "replay", "total")


@dataclass(frozen=True)
class Interval:
    """A period in which a rank was in one state. Times are CLOCK_MONOTONIC, in ns."""

    rank: int
    state: State
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / NS


@dataclass(frozen=True)
class Failure:
    """The death of one worker, and the recovery of its rank. Times are CLOCK_MONOTONIC, in ns.

    A time is None if the run ended, or the rank died again, before.
    """

    rank: int
    incarnation: int
    wait_status: int
    failed_ns: int
    killed_ns: int | None = None
    started_ns: int | None = None
    attached_ns: int | None = None
    restored_ns: int | None = None
    joined_ns: int | None = None
    failed_again_ns: int | None = None
    replayed_ops: int | None = None
    waits: Mapping[int, float] = field(default_factory=dict)  # other rank: seconds it waited

    @property
    def detect(self) -> float | None:
        """Seconds from the kill, where its moment is known, until the agent saw it."""
        return _seconds(self.killed_ns, self.failed_ns)

    @property
    def process_start(self) -> float | None:
        """Seconds from the agent seeing the death until it had started the next worker."""
        return _seconds(self.failed_ns, self.started_ns)

    @property
    def script_start(self) -> float | None:
        """Seconds from process start until it attached: the interpreter and the imports."""
        return _seconds(self.started_ns, self.attached_ns)

    @property
    def restore(self) -> float | None:
        """Seconds for the script up to its training loop, and for loading the snapshot."""
        return _seconds(self.attached_ns, self.restored_ns)

    @property
    def replay(self) -> float | None:
        """Seconds for the ops since the snapshot (all ops, if there was no snapshot yet)."""
        return _seconds(self.restored_ns or self.attached_ns, self.joined_ns)

    @property
    def total(self) -> float | None:
        """Seconds from the kill, if known, else from its detection, until the rank was back."""
        return _seconds(self.killed_ns or self.failed_ns, self.joined_ns)

    @property
    def times(self) -> dict[str, float | None]:
        """The durations in seconds, by the names of PARTS; then the total."""
        parts = (self.detect, self.process_start, self.script_start, self.restore, self.replay)
        return dict(zip(PARTS, (*parts, self.total), strict=True))

    @property
    def cause(self) -> str:
        """How the worker ended: `signal 9` or `exit code 1`."""
        code = os.waitstatus_to_exitcode(self.wait_status)
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def _seconds(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / NS


@dataclass(frozen=True)
class Report:
    """The contents of a file written by `hvdft run --report FILE`.

    Attributes:
        facts: Of the whole job. Of its start: `schema`, `job`, `size`, `version`, `date`,
            `command`, and the `hosts` of its ranks; of its end: `exit_code`, `error`, `ranks` and
            more.
        events: In order of time.
        divergences: In order of time.
        replacements: Of lost hosts by spare ones.
        causes: Why workers died, where that is known, by rank and incarnation.
        stacks: Of workers that kept others waiting.
        slow: Ranks that began to be slow, or no longer were, in order of time.
        ops: Single ops of the ranks, of a job with --trace-ops.
        ring: Likewise of the nodes, each as its first rank, as members of the ring between nodes.
    """

    facts: Mapping[str, Any]
    events: Sequence[Event]
    divergences: Sequence[Divergence] = ()
    replacements: Sequence[ReplacementFacts] = ()
    causes: Mapping[tuple[int, int], str] = field(default_factory=dict)
    stacks: Sequence[StacksFacts] = ()
    slow: Sequence[SlowFacts] = ()
    ops: Sequence[OpsFacts] = ()
    ring: Sequence[OpsFacts] = ()

    @property
    def finished(self) -> bool:
        """Whether the job has ended in order; otherwise it still runs, or its writer was killed."""
        return "exit_code" in self.facts


# Notes that are kept as they are, by their type.
_NOTES = {
    "REPLACED": ReplacementFacts,
    "STACKS": StacksFacts,
    "SLOW": SlowFacts,
    "OPS": OpsFacts,
    "RING": OpsFacts,
}


def read_report(path: str | os.PathLike[str]) -> Report:
    """Reads a report, JSON Lines: facts of the job's start, every event, facts of its end.

    Args:
        path: The file. The last line of an unfinished report may be incomplete.

    Raises:
        HvdFtError: The file does not exist, is not a report, or is one of a newer version.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise HvdFtError(f"cannot read report {path}: {reason}; give a file of --report") from error
    *lines, cut_off = text.split("\n")
    facts: dict[str, Any] = {}
    events: list[Event] = []
    divergences: list[Divergence] = []
    causes: dict[tuple[int, int], str] = {}
    notes: dict[str, list[Any]] = {kind: [] for kind in _NOTES}
    number = 1
    try:
        for number, line in enumerate(lines or [cut_off], start=1):  # noqa: B007 (for the message)
            fields = read_json(line)
            if "type" in fields and facts:
                if fields["type"] not in NOTES:
                    events.append(_event(fields))
                if "divergence" in fields:
                    divergences.append(convert(fields["divergence"], Divergence))
                if fields["type"] in notes:
                    notes[fields["type"]].append(convert(fields, _NOTES[fields["type"]]))
                elif fields["type"] == "CAUSE":
                    cause: CauseFacts = convert(fields, CauseFacts)
                    causes[cause.rank, cause.incarnation] = cause.text
            elif "job" in fields:  # a later generation of agents writes everything to a FIFO again
                _check_version(path, fields)
                facts, events, divergences = _checked(fields), [], []
            elif "exit_code" in fields and facts:
                facts = _checked({**facts, **fields})
            else:
                raise ValueError(line)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise HvdFtError(
            f"{path}, line {number} is not a report's; give a file that hvdft run --report wrote"
        ) from error
    in_order = sorted(events, key=lambda event: event.time_ns)
    return Report(
        facts,
        in_order,
        divergences,
        causes=causes,
        replacements=notes["REPLACED"],
        stacks=notes["STACKS"],
        slow=notes["SLOW"],
        ops=notes["OPS"],
        ring=notes["RING"],
    )


def _check_version(path: str | os.PathLike[str], facts: Mapping[str, Any]) -> None:
    version = facts.get("schema", 0)
    if isinstance(version, int) and version > SCHEMA:
        raise HvdFtError(
            f"{path} is a report of version {version}, written by hvd_ft "
            f"{facts.get('version', '?')}; this one reads versions up to {SCHEMA}: use a newer one"
        )


def _checked(facts: dict[str, Any]) -> dict[str, Any]:
    convert(facts, Facts)  # as tables will
    return facts


def _event(fields: dict[str, Any]) -> Event:
    of = convert(fields, EventFacts)
    event = Event(of.time_ns, EventType[fields["type"]], of.rank, of.incarnation, of.detail)
    if event.type is EventType.FAILED:
        os.waitstatus_to_exitcode(event.detail)
    return event


def cause_lines(report: Report) -> list[str]:
    """Returns a line for every worker of which it is known why it died, and one for the job."""
    error = report.facts.get("error")
    why = [f"the job was stopped: {error}"] if error else []
    return why + [
        f"rank {rank} (incarnation {incarnation}): {text}"
        for (rank, incarnation), text in report.causes.items()
    ]


def slow_lines(report: Report) -> list[str]:
    """Returns a line for each time at which a rank or host began to be slow, or no longer was."""
    begin_ns = min((event.time_ns for event in report.events), default=0)
    return [
        f"after {max(found.time_ns - begin_ns, 0) / NS:.0f} s: {found.text}"
        for found in report.slow
    ]


def replacement_lines(report: Report) -> list[str]:
    """Returns a line for every host that was replaced by a spare host."""
    return [
        f"host {found.host} was lost; its ranks {', '.join(map(str, found.ranks))} continued "
        f"on {found.by} (epoch {found.epoch})"
        for found in report.replacements
    ]


def failures(
    events: Sequence[Event], kills: Mapping[tuple[int, int], int] | None = None
) -> list[Failure]:
    """Finds every death of a worker and its rank's recovery.

    Args:
        events: The events of the run.
        kills: For (rank, incarnation) the time of its kill, CLOCK_MONOTONIC ns, where known.

    Returns:
        The failures, in order of time.
    """
    times: dict[tuple[int, int, EventType], Event] = {}
    for event in events:
        times.setdefault((event.rank, event.incarnation, event.type), event)

    def after(failed: Event, kind: EventType) -> Event | None:
        return times.get((failed.rank, failed.incarnation + 1, kind))

    def after_ns(failed: Event, kind: EventType) -> int | None:
        event = after(failed, kind)
        return event.time_ns if event else None

    found = []
    for failed in sorted(_of(events, EventType.FAILED), key=lambda event: event.time_ns):
        joined = after(failed, EventType.JOINED)
        found.append(
            Failure(
                rank=failed.rank,
                incarnation=failed.incarnation,
                wait_status=failed.detail,
                failed_ns=failed.time_ns,
                killed_ns=(kills or {}).get((failed.rank, failed.incarnation)),
                started_ns=after_ns(failed, EventType.STARTED),
                attached_ns=after_ns(failed, EventType.ATTACHED),
                restored_ns=after_ns(failed, EventType.RESTORED),
                joined_ns=after_ns(failed, EventType.JOINED),
                failed_again_ns=after_ns(failed, EventType.FAILED),
                replayed_ops=joined.detail if joined else None,
            )
        )
    charged = _charge_waits(found, _of(events, EventType.WAITED))
    return [replace(failure, waits=waits) for failure, waits in zip(found, charged, strict=True)]


def _of(events: Iterable[Event], kind: EventType) -> list[Event]:
    return [event for event in events if event.type == kind]


def _charge_waits(found: Sequence[Failure], waited: Iterable[Event]) -> list[dict[int, float]]:
    """Charges each wait to the failure that it overlaps longest, the later one of equals."""
    charged: list[dict[int, float]] = [{} for _ in found]
    for wait in waited:
        start_ns, end_ns = wait.time_ns - wait.detail, wait.time_ns
        best, longest = None, 1
        for waits, failure in zip(charged, found, strict=True):
            begin_ns = failure.killed_ns or failure.failed_ns
            over_ns = failure.joined_ns or failure.failed_again_ns or end_ns
            overlap = min(end_ns, over_ns) - max(start_ns, begin_ns)
            if failure.rank != wait.rank and overlap >= longest:
                best, longest = waits, overlap
        if best is not None:
            best[wait.rank] = best.get(wait.rank, 0.0) + wait.detail / NS
    return charged


def intervals(events: Sequence[Event]) -> list[Interval]:
    """Returns the state of every rank over the run.

    Args:
        events: The events of the run.

    Returns:
        The intervals, by rank and time; those of one rank are contiguous.
    """
    end_ns = max((event.time_ns for event in events), default=0)
    found: list[Interval] = []
    for rank in sorted({event.rank for event in events}):
        own = sorted((e for e in events if e.rank == rank), key=lambda event: event.time_ns)
        found += _intervals_of_rank(rank, own, end_ns)
    return found


_STATE_AFTER = {
    EventType.FAILED: State.RESTARTING,
    EventType.JOINED: State.RUNNING,
    EventType.DONE: State.DONE,
}


def _intervals_of_rank(rank: int, own: Sequence[Event], end_ns: int) -> list[Interval]:
    changes: list[tuple[int, State]] = []
    for event in own:
        state = _STATE_AFTER.get(event.type)
        if event.type is EventType.STARTED and event.incarnation == 0:
            state = State.STARTING
        elif event.type is EventType.ATTACHED and event.incarnation > 0:
            state = State.REPLAYING
        elif event.type is EventType.WAITED:
            start_ns = event.time_ns - event.detail
            # Events during the wait were part of it; the interrupted state continues after it.
            before = changes[-1][1] if changes else State.STARTING
            changes = [change for change in changes if change[0] < start_ns]
            changes.append((start_ns, State.WAITING))
            state = before
        if state is not None:
            changes.append((event.time_ns, state))
    changes.append((end_ns, State.DONE))
    return [
        Interval(rank, state, start_ns, stop_ns)
        for (start_ns, state), (stop_ns, _) in pairwise(changes)
        if stop_ns > start_ns
    ]


def steps_lost(expected: int, final: Sequence[int], executed: Sequence[int]) -> int:
    """Counts the training steps that a failure cost.

    Args:
        expected: Steps of the training as written.
        final: For each rank the steps in its final state: fewer than expected are missing.
        executed: For each surviving rank the steps it really computed: more than expected
            were computed again because something was rolled back.

    Returns:
        The most steps missing on any rank plus the most computed again on any survivor.
    """
    missing = max((expected - steps for steps in final), default=0)
    again = max((steps - expected for steps in executed), default=0)
    return max(missing, 0) + max(again, 0)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def failures_table(found: Sequence[Failure]) -> Table:
    """Lays out failures as a table, times in seconds, one failure a column."""
    table = Table(title="Failures, in seconds", title_justify="left", show_header=False)
    table.add_row("rank", *(str(failure.rank) for failure in found))
    table.add_row("incarnation", *(str(failure.incarnation) for failure in found))
    table.add_row("ended by", *(failure.cause for failure in found))
    table.add_section()
    columns = [failure.times for failure in found]
    for name in PARTS:
        table.add_row(name, *(_cell(times[name]) for times in columns))
    table.add_section()
    for rank in sorted({rank for failure in found for rank in failure.waits}):
        table.add_row(f"rank {rank} waited", *(_cell(f.waits.get(rank)) for f in found))
    return table


def snapshots_table(ranks: Sequence[dict[str, Any]]) -> Table | None:
    """Lays out the cost of snapshots, one rank a row.

    Args:
        ranks: The facts of every rank, from a report.

    Returns:
        The table; None if no rank has taken a snapshot.
    """
    table = Table(title="Snapshots, and their share of the training time", title_justify="left")
    for name in ("rank", "taken", "every … steps", "training stood", "copied beside it"):
        table.add_column(name, justify="left" if name == "rank" else "right")
    for facts in ranks:
        of: RankFacts = convert(facts, RankFacts)
        costs = of.snapshots
        if costs.count and costs.training_ns:
            table.add_row(
                str(of.rank),
                str(costs.count),
                str(costs.steps),
                *(f"{part / costs.training_ns:.2%}" for part in (costs.stall_ns, costs.copy_ns)),
            )
    return table if table.row_count else None


def divergences_table(found: Sequence[Divergence]) -> Table | None:
    """Lays out divergences as a table, one a row; None if there are none."""
    table = Table(title="Variables that were equal on all ranks", title_justify="left")
    for name in ("variable", "differ", "at step", "equal at step", "on"):
        table.add_column(name, justify="right" if "step" in name or name == "differ" else "left")
    for each in found:
        steps = (str(each.step), str(each.equal_step) if each.equal_step else "-")
        table.add_row(Text(each.variable), str(each.variables), *steps, each.where)
    return table if table.row_count else None


def states_table(found: Sequence[Interval]) -> Table:
    """Lays out how long each rank spent in each state, in seconds, one rank a row."""
    states = [state for state in State if state is not State.DONE]
    table = Table(title="Time in each state, in seconds", title_justify="left")
    table.add_column("rank")
    for state in states:
        table.add_column(state.name.lower(), justify="right")
    for rank in sorted({interval.rank for interval in found}):
        own = [interval for interval in found if interval.rank == rank]
        sums = (sum(i.seconds for i in own if i.state is state) for state in states)
        table.add_row(str(rank), *(f"{seconds:.2f}" for seconds in sums))
    return table
