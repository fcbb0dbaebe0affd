"""What a run has come to, in a line: at the end of `hvdft run`, and on top of its report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from hvd_ft.native.types import Event, EventType
from hvd_ft.reports.report import NS, Report, failures
from hvd_ft.reports.spans import length, merged


@dataclass(frozen=True)
class Tally:
    """What failures have cost, and how often the job was saved.

    Attributes:
        failures: deaths of workers.
        lost_seconds: in which at least one rank was away.
        checkpoints: that were written.
        lost_hosts: hosts that were lost for good.
    """

    failures: int
    lost_seconds: float
    checkpoints: int
    lost_hosts: int = 0


def tally(events: Sequence[Event]) -> Tally:
    """Counts what the events of a run have of failures and checkpoints."""
    found = failures(events)
    end_ns = max((event.time_ns for event in events), default=0)
    away = merged(
        (each.failed_ns, each.joined_ns or each.failed_again_ns or end_ns) for each in found
    )
    written = sum(event.type is EventType.CHECKPOINTED for event in events)
    return Tally(len(found), length(away) / NS, written)


def outcome_line(code: int, steps: int, counts: Tally, lost_steps: int = 0) -> str:
    """Describes the end of a job.

    Args:
        code: exit code of the job.
        steps: of its training loops.
        counts: of the whole job.
        lost_steps: that were done again, because the job began anew from a checkpoint.
    """
    parts = [_count(steps, "step"), _count(counts.failures, "failure")]
    if counts.lost_hosts:
        parts += [f"{_count(counts.lost_hosts, 'host')} lost"]
    if counts.failures:
        parts += [f"{counts.lost_seconds:.1f} s lost"]
    if counts.failures or lost_steps:
        parts += [f"{_count(lost_steps, 'step')} lost"]
    if counts.checkpoints:
        parts += [_count(counts.checkpoints, "checkpoint")]
    return f"{'done' if code == 0 else f'ended with code {code}'}: {', '.join(parts)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def headline(report: Report) -> str:
    """Returns one line that says how the run has ended, and what it has come to."""
    facts = report.facts
    ablated = facts.get("ablated")
    begin = f"{str(ablated).upper()} LEFT OUT, FOR MEASUREMENT ONLY, " if ablated else ""
    if not report.finished:
        return f"{begin}UNFINISHED: it still runs, or was killed, or the disk was full"
    return begin + outcome_line(facts["exit_code"], steps_of(facts), tally(report.events))


def steps_of(facts: Mapping[str, Any]) -> int:
    """Returns the steps of a run by the facts of its report; 0 if it has not ended."""
    return max((rank.get("step", 0) for rank in facts.get("ranks", ())), default=0)


def _version(facts: Mapping[str, Any]) -> str:
    commit = f" (commit {facts['commit']})" if facts.get("commit") else ""
    return f"hvd_ft {facts['version']}{commit}" if "version" in facts else ""


def identity(report: Report) -> str:
    """Returns one line with the run's job, ranks, hosts, version, begin and command."""
    facts = report.facts
    by_host = groupby(facts.get("hosts", ()))
    hosts = ",".join(f"{host}:{len(list(ranks))}" for host, ranks in by_host)
    parts = [
        f"job {facts['job']}",
        f"{facts.get('size', '?')} ranks" + (f" on {hosts}" if hosts else ""),
        _version(facts),
        f"begun {facts['date']}" if "date" in facts else "",
        shlex.join(map(str, facts.get("command", ()))),
    ]
    return ", ".join(filter(None, parts))
