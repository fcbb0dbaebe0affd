"""Runs a job with as many ranks as there are hosts for: from one checkpoint to the next."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from hvd_ft.checkpoint.catalogue import find
from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import new_job_id
from hvd_ft.launcher import reach
from hvd_ft.launcher.checkpoints import how_to_go_on
from hvd_ft.launcher.job import Job, ResolvedJob, job_settings, resolve
from hvd_ft.launcher.machine.seen import HostChange
from hvd_ft.launcher.run import run_job
from hvd_ft.launcher.spare_hosts import check_fence
from hvd_ft.launcher.watchers import Display
from hvd_ft.members.hosts import Host, host_list, machine_file
from hvd_ft.members.resizing_rule import (
    HostPool,
    Limits,
    added,
    describe_change,
    slots_of,
    withdrawn,
)
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.memory_file import memory_file
from hvd_ft.system.say import say
from hvd_ft.system.stop_signals import StopSignals, stop_signals

_LOOK_SECONDS = 0.2  # between two looks for hosts, while too few are there
EXIT_TOO_FEW = 1
RESUME_DIR = "HOROVOD_FT_RESUME_DIR"
GRACE = "60"  # seconds for the checkpoint that a change of hosts takes, if the user gave none


class Hosts(Protocol):
    """Names the hosts that there are."""

    def poll(self, now: float) -> Sequence[Host] | None:
        """Returns them if they are known anew since the last call, else None."""

    def close(self) -> None:
        """Ends what it runs."""


class NamedHosts:
    """The hosts of `-H`, which stay the same."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts: Sequence[Host] | None = hosts

    def poll(self, now: float) -> Sequence[Host] | None:
        """As `Hosts.poll`."""
        found, self._hosts = self._hosts, None
        return found

    def close(self) -> None:
        """Has nothing to end."""


@dataclass(frozen=True)
class Plan:
    """How a job may change its size.

    Attributes:
        limits: of the number of ranks, and how long lost hosts are left out.
        timeout: seconds for which too few hosts are waited for.
        display: makes the display of one part of the job.
    """

    limits: Limits
    timeout: float
    display: Callable[[], contextlib.AbstractContextManager[Display]]


def launch_resizing(job: Job, hosts: Hosts, plan: Plan) -> int:
    """Runs a job to its end, on more hosts or fewer when they are found or lost.

    Each part of it is a job of its own, with ranks numbered anew, which goes on from the
    checkpoint that the part before has left.

    Args:
        job: What to run. Its first part has at least its size; it needs a checkpoint directory.
        hosts: Names the hosts.
        plan: How it may change.

    Returns:
        The exit code of the last part; 1 if there were too few hosts for too long.

    Raises:
        HvdFtError: A part cannot be started.
    """
    with contextlib.closing(_Parts(job, hosts, plan)) as parts:
        return parts.run()


class _Parts:
    def __init__(self, job: Job, hosts: Hosts, plan: Plan) -> None:
        # A change of hosts is a preemption, which has a limit.
        self._settings = job_settings(job)
        grace = {} if self._settings.grace_seconds else {"HOROVOD_FT_GRACE_SECONDS": GRACE}
        self._job = replace(job, given={**grace, **job.given})
        self._hosts = hosts
        self._plan = plan
        self._pool = HostPool(plan.limits)
        self._present: tuple[Host, ...] = ()
        self._probes: dict[str, reach.Probe] = {}
        self._reached: set[str] = set()
        self._number = 0  # of this part

    def close(self) -> None:
        """Ends what is under way."""
        self._hosts.close()
        for probe in self._probes.values():
            probe.close()

    def run(self) -> int:
        job = self._job
        while True:
            chosen, stopped = self._await_hosts(job.size if self._number == 0 else 1)
            if not chosen:
                return stopped or self._too_few(job)
            with self._part(job, chosen) as part, self._plan.display() as shown:
                ended = run_job(part, shown, resizing=self)
            if ended.code == 0 or not (ended.lost or ended.resized):
                if ended.code and (text := how_to_go_on(part.settings)):
                    say(text)
                return ended.code
            if ended.lost:
                self._lose(ended.lost)
            job = self._continued(part.job)

    @contextlib.contextmanager
    def _part(self, job: Job, chosen: tuple[Host, ...]) -> Iterator[ResolvedJob]:
        """Gives the job of the next part."""
        self._number += 1
        self._present = chosen
        if self._number > 1:
            say(f"the job goes on with {slots_of(chosen)} ranks on {host_list(chosen)}")
        with memory_file(machine_file(chosen)) as machines:
            part = replace(
                job,
                id=job.id if self._number == 1 else new_job_id(),
                size=slots_of(chosen),
                hosts=chosen,
                machine_file=machines,
                report=part_name(self._job.report, self._number),
                spare_hosts=[host for host in self._job.spare_hosts if host not in chosen],
                inject=self._job.inject if self._number == 1 else (),
            )
            yield resolve(part)

    def _continued(self, part: Job) -> Job:
        """Returns the job with the checkpoint that a part has left."""
        directory = self._settings.checkpoint_dir
        assert directory is not None
        found = [
            each
            for each in find(Path(directory))
            if each.manifest is not None and each.manifest.job == part.id and not each.refused
        ]
        if not found:
            say("the job had no state yet: what follows begins where its last part began")
            return part
        latest = found[-1].manifest
        assert latest is not None
        if latest.apart:
            raise HvdFtError(
                f"the job's hosts have a directory {directory} each, so nothing can go on on other "
                "hosts: give --checkpoint-dir one that all hosts share"
            )
        return replace(part, given={**part.given, RESUME_DIR: str(found[-1].path)})

    def _await_hosts(self, at_least: int) -> tuple[tuple[Host, ...], int]:
        """Waits for enough hosts; returns them, and else the exit code if a signal came."""
        begun, told = time.monotonic(), False
        with EventLoop() as loop, stop_signals() as signals:
            loop.watch(signals, lambda: signals.received)
            while True:
                self._look(now := time.monotonic())
                chosen = self._pool.choice(now)
                if slots_of(chosen) >= at_least and self._can_be_reached(chosen, now):
                    return chosen, 0
                if signals.received:
                    return (), _code_of(signals)
                if now > begun + self._plan.timeout:
                    return (), 0
                if not told and now > begun + 2:
                    told = True
                    least = max(self._plan.limits.least, at_least)
                    say(
                        f"waiting for hosts: there are {slots_of(self._pool.usable(now))} slots, "
                        "and the job needs "
                        f"{least}; it ends in {self._plan.timeout:g} s (--elastic-timeout)"
                    )
                loop.run_once(_LOOK_SECONDS)

    def _too_few(self, job: Job) -> int:
        path = job.given.get(RESUME_DIR)
        least = self._plan.limits.least
        say(
            f"there were not {least} slots within {self._plan.timeout:g} s, so the job was ended"
            + (f"; hvdft run --resume {path} goes on" if path else "; it has left no checkpoint")
        )
        return EXIT_TOO_FEW

    def change(self, now: float) -> HostChange | None:
        """As `Resizing.change`."""
        self._look(now)
        chosen = self._pool.change(self._present, now)
        if not chosen or not self._can_be_reached(chosen, now):
            return None
        why = describe_change(self._present, chosen)
        fewer, more = withdrawn(self._present, chosen), added(self._present, chosen)
        return HostChange(why, slots_of(chosen), fewer, more)

    def left(self, names: Sequence[str], *, lost: bool) -> None:
        """As `Resizing.left`."""
        self._present = tuple(host for host in self._present if host.name not in names)
        if lost:
            self._lose(names)

    def joined(self, hosts: Sequence[Host]) -> None:
        """As `Resizing.joined`."""
        self._present = (*self._present, *hosts)

    def _look(self, now: float) -> None:
        found = self._hosts.poll(now)
        if found is not None:
            self._pool = self._pool.named(found)

    def _lose(self, names: Sequence[str]) -> None:
        self._pool = self._pool.lost(names, time.monotonic(), random.random)
        self._reached -= {*names}

    def _can_be_reached(self, hosts: Sequence[Host], now: float) -> bool:
        """Returns whether mpirun has reached all of these; leaves out those that it cannot."""
        for name in {host.name for host in hosts} - self._reached:
            if name not in self._probes:
                # A job on that host too: mpirun has to listen where the host can answer.
                there = replace(self._job, hosts=[*self._present, Host(name, 1)], machine_file="")
                self._probes[name] = reach.Probe(name, resolve(there).environment)
                continue
            reason = self._probes[name].result()
            if reason is None:
                continue
            self._probes.pop(name).close()
            if reason:
                say(f"host {name} cannot be reached: {reason}")
                self._pool = self._pool.lost([name], now, random.random)
            else:
                self._reached.add(name)
        return self._reached >= {host.name for host in hosts}


def part_name(report: str | None, number: int) -> str | None:
    """Returns the name of a part's report: `run.jsonl`, then `run-2.jsonl` and so on."""
    if report is None or number == 1:
        return report
    stem, suffix = os.path.splitext(report)
    return f"{stem}-{number}{suffix}"


def _code_of(signals: StopSignals) -> int:
    return 128 + int(next(iter(signals.received), signal.SIGTERM))


def check_resizing(job: Job, limits: Limits) -> None:
    """Checks that a job can change its size.

    Args:
        job: What to run.
        limits: As given.

    Raises:
        HvdFtError: It cannot.
    """
    limits.check(job.size)
    settings = job_settings(job)
    check_fence(settings)
    if settings.checkpoint_dir is None:
        raise HvdFtError(
            "--min-np: the job goes on with fewer ranks from a checkpoint, and there is no "
            "directory for it; give --checkpoint-dir, which all hosts share"
        )
    if job.resume:
        raise HvdFtError(
            "--resume JOB with --min-np: that job's state is its hosts'; resume it without "
            "--min-np, or give --resume the directory of its checkpoints"
        )
