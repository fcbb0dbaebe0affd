"""A report as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

A process of the trace is a rank, with a thread for each of: what its worker did, its recoveries,
its snapshots, its agent, and its single ops, if the report has them (several threads, if they
overlap); the first rank of a node also has one for the node's part in the ring. One more process
is the job: outages, checkpoints, replaced hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hvd_ft.native.types import Event, EventType
from hvd_ft.reports.accounting import Accounts, Use
from hvd_ft.reports.cost_table import account_of
from hvd_ft.reports.op_spans import OpSpan, op_spans, ring_spans
from hvd_ft.reports.report import Failure, Report, failures
from hvd_ft.reports.spans import Span

Entry = dict[str, Any]
JOB = 0  # process of the trace; rank r is r + 1
WORKER, RECOVERY, SNAPSHOTS, AGENT, RING, OPS = 1, 2, 3, 4, 5, 6
_THREADS = {WORKER: "worker", RECOVERY: "recovery", SNAPSHOTS: "snapshots", AGENT: "agent"}
_OUTAGES, _NOTES = 1, 2
_POSITION_SHIFT, _POSITION_MASK = 38, (1 << 26) - 1  # of a share: checkpointer/round.py
# Instants of a rank: their thread, and what the event's detail is.
_INSTANTS = {
    EventType.STARTED: (AGENT, "pid"),
    EventType.FAILED: (AGENT, "status"),
    EventType.DONE: (AGENT, "status"),
    EventType.RESUMED: (AGENT, "position of the ring"),
    EventType.ATTACHED: (RECOVERY, "length of the op log"),
    EventType.RESTORED: (RECOVERY, "op"),
    EventType.JOINED: (RECOVERY, "ops replayed"),
    EventType.SNAPSHOT: (SNAPSHOTS, "op"),
    EventType.SHARE: (SNAPSHOTS, "share of a checkpoint"),
    EventType.DIVERGED: (WORKER, "divergence"),
}


def trace_of(told: Report) -> dict[str, Any]:
    """Returns the trace, as the object that its file has as JSON.

    Args:
        told: The report.
    """
    accounts = account_of(told)
    events = [event for event in told.events if event.type is not EventType.LOST]
    clock = _Clock(accounts.begin_ns)
    known = {own.rank for own in accounts.ranks}
    ops = [(OPS + span.lane, span) for span in op_spans(told.ops, accounts.begin_ns)]
    ops += [(RING, span) for span in ring_spans(told.ring, accounts.begin_ns)]
    ops = [(tid, span) for tid, span in ops if span.rank in known]
    entries = [
        *_workers(accounts, clock),
        *_recoveries(failures(events), clock),
        *_agents(events, accounts.end_ns, clock),
        *_instants(events, clock),
        *_job(told, accounts, events, clock),
        *(
            entry
            for tid, span in ops
            for entry in clock.span(span.rank + 1, tid, span.name, span.times, span.args)
        ),
    ]
    entries.sort(key=lambda entry: entry["ts"])  # stable: an end is before the next begin
    return {
        "traceEvents": [*_names(told, accounts, ops), *entries],
        "displayTimeUnit": "ms",
        "otherData": {
            "job": str(told.facts["job"]),
            "version": str(told.facts.get("version", "")),
            "begin_monotonic_ns": accounts.begin_ns,
            "clocks": _clocks(told, events),
        },
    }


class _Clock:
    """Times of a report as microseconds since the job's begin."""

    def __init__(self, begin_ns: int) -> None:
        self._begin_ns = begin_ns

    def __call__(self, time_ns: int) -> float:
        return (max(time_ns, self._begin_ns) - self._begin_ns) / 1000

    def span(
        self, pid: int, tid: int, name: str, times: Span, args: Mapping[str, Any] | None = None
    ) -> list[Entry]:
        start, end = map(self, times)
        whose = {"pid": pid, "tid": tid, "name": name}
        return [
            {**whose, "ph": "B", "ts": start, "args": dict(args or {})},
            {**whose, "ph": "E", "ts": end},
        ]

    def instant(
        self, pid: int, tid: int, name: str, time_ns: int, args: Mapping[str, Any]
    ) -> Entry:
        at = {"pid": pid, "tid": tid, "name": name, "ts": self(time_ns)}
        return {**at, "ph": "i", "s": "t", "args": dict(args)}


def _names(told: Report, accounts: Accounts, ops: Sequence[tuple[int, OpSpan]]) -> Iterator[Entry]:
    """Returns names for all processes and threads."""
    hosts = told.facts.get("hosts", ())

    def name(kind: str, pid: int, tid: int, text: str) -> Entry:
        return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {"name": text}}

    yield name("process_name", JOB, 0, f"job {told.facts['job']}")
    yield name("thread_name", JOB, _OUTAGES, "ranks away")
    yield name("thread_name", JOB, _NOTES, "checkpoints, hosts")
    for own in accounts.ranks:
        where = f" on {hosts[own.rank]}" if 0 <= own.rank < len(hosts) else ""
        yield name("process_name", own.rank + 1, 0, f"rank {own.rank}{where}")
        for tid, text in _THREADS.items():
            yield name("thread_name", own.rank + 1, tid, text)
    for rank, tid in sorted({(span.rank, tid) for tid, span in ops}):
        later = f"ops ({tid - OPS + 1})"
        text = {RING: "ring of its node", OPS: "ops"}.get(tid, later)
        yield name("thread_name", rank + 1, tid, text)


def _workers(accounts: Accounts, clock: _Clock) -> Iterator[Entry]:
    for own in accounts.ranks:
        spans = sorted((span, use) for use in Use for span in own.spans[use])
        for span, use in spans:
            yield from clock.span(own.rank + 1, WORKER, use.value, span)


def _recoveries(found: Iterable[Failure], clock: _Clock) -> Iterator[Entry]:
    """Returns the parts of each recovery, as far as its events are known and in order."""
    over: dict[int, int] = {}  # by rank: what its earlier recoveries have taken
    for failure in found:
        restored = failure.restored_ns is not None
        times = {
            "process start": failure.failed_ns,
            "import": failure.started_ns,
            "restore" if restored else "replay": failure.attached_ns,
            **({"replay": failure.restored_ns} if restored else {}),
        }
        args = {"incarnation": failure.incarnation + 1, "after": failure.cause}
        ends = [*[*times.values()][1:], failure.joined_ns]
        for (name, start), end in zip(times.items(), ends, strict=True):
            if start is None or end is None or not over.get(failure.rank, start) <= start <= end:
                break
            over[failure.rank] = end
            yield from clock.span(failure.rank + 1, RECOVERY, name, (start, end), args)


def _agents(events: Sequence[Event], end_ns: int, clock: _Clock) -> Iterator[Entry]:
    """Returns each rank's agents: one begins where another takes the rank over."""
    begins: dict[int, list[tuple[int, int]]] = {}
    for event in events:
        if event.rank not in begins:
            begins[event.rank] = [(event.time_ns, 0)]
        if event.type is EventType.ADOPTED:
            begins[event.rank].append((event.time_ns, event.detail))
    for rank, starts in begins.items():
        for (start_ns, generation), (stop_ns, _) in pairwise([*starts, (end_ns, 0)]):
            name = f"agent of generation {generation}"
            yield from clock.span(rank + 1, AGENT, name, (start_ns, stop_ns))


def _instants(events: Iterable[Event], clock: _Clock) -> Iterator[Entry]:
    for event in events:
        if event.type in _INSTANTS:
            tid, what = _INSTANTS[event.type]
            args = {"incarnation": event.incarnation, what: event.detail}
            yield clock.instant(event.rank + 1, tid, event.type.name, event.time_ns, args)


def _job(
    told: Report, accounts: Accounts, events: Iterable[Event], clock: _Clock
) -> Iterator[Entry]:
    for outage in accounts.outages:
        yield from clock.span(JOB, _OUTAGES, "ranks away", outage)
    asked: dict[int, int] = {}
    for event in events:
        if event.type is EventType.CHECKPOINT:
            asked[event.detail] = event.time_ns
        elif event.type is EventType.CHECKPOINTED and event.detail in asked:
            # They may overlap, so they are asynchronous: by an id, and not by their thread.
            times = (asked.pop(event.detail), event.time_ns)
            for entry in clock.span(JOB, _NOTES, "checkpoint", times, {"op": event.detail}):
                kind = {"B": "b", "E": "e"}[entry["ph"]]
                yield {**entry, "ph": kind, "cat": "checkpoint", "id": event.detail}
    for lost in told.replacements:
        args = {"host": lost.host, "by": lost.by, "ranks": list(lost.ranks)}
        yield clock.instant(JOB, _NOTES, "host replaced", lost.time_ns, args)


def _clocks(told: Report, events: Iterable[Event]) -> dict[str, Any]:
    """Returns how the clocks of hosts are aligned, and how well."""
    hosts = [str(host) for host in told.facts.get("hosts", ())]
    errors: dict[str, float | None] = {
        host: 0.0 if host == hosts[0] else None for host in dict.fromkeys(hosts)
    }
    asked: dict[int, int] = {}
    for event in events:
        if event.type is EventType.CHECKPOINT:
            asked[event.detail & _POSITION_MASK] = event.time_ns
        if event.type is not EventType.SHARE or not 0 <= event.rank < len(hosts):
            continue
        since_ns = asked.get(event.detail >> _POSITION_SHIFT)
        host = hosts[event.rank]
        if since_ns is None or host == hosts[0] or event.time_ns < since_ns:
            continue
        late = (event.time_ns - since_ns) / 1000
        known = errors[host]
        errors[host] = late if known is None else min(known, late)
    return {
        "clock": f"CLOCK_MONOTONIC of {hosts[0] if hosts else 'the host of rank 0'}",
        "aligned": "Each host's times were translated by the shortest time that one of its "
        "messages took, so they are late by at most this time, which is not known itself.",
        "late_by_at_most_us": errors,
        "bound": "The shortest time from the request for a checkpoint to a host's share of it; "
        "null: no checkpoint was written there, so nothing bounds the error. The error itself "
        "is of the order of the network's latency.",
    }
