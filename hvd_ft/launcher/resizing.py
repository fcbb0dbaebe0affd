"""Runs a job in parts, each on the hosts that there are, from one checkpoint to the next."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from hvd_ft.checkpoint.catalogue import find
from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import new_job_id
from hvd_ft.launcher import reach
from hvd_ft.launcher.checkpoints import how_to_go_on
from hvd_ft.launcher.job import ResolvedJob
from hvd_ft.launcher.machine import parts_machine
from hvd_ft.launcher.machine.actions import End, Probe, Say
from hvd_ft.launcher.machine.parts_machine import (
    BeginPart,
    ChangeHosts,
    EndParts,
    FindCheckpoint,
    PartsMachine,
)
from hvd_ft.launcher.machine.seen import HostChange
from hvd_ft.launcher.outcome import Outcome
from hvd_ft.launcher.run import run_job
from hvd_ft.launcher.watchers import Display, StatusPage
from hvd_ft.members.hosts import Host, machine_file
from hvd_ft.members.resizing_rule import slots_of
from hvd_ft.system.apart import Apart, call_apart
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.memory_file import memory_file
from hvd_ft.system.say import say
from hvd_ft.system.stop_signals import stop_signals

_LOOK_SECONDS = 0.2  # between two looks for hosts, while too few are there
RESUME_DIR = "HOROVOD_FT_RESUME_DIR"
GRACE = "60"  # seconds for the checkpoint that a change of hosts takes, if the user gave none


class Hosts(Protocol):
    """Names the hosts that exist now."""

    def poll(self, now: float) -> Sequence[Host] | None:
        """Returns the hosts if they were determined again since the last call, else None."""

    def close(self) -> None:
        """Ends the processes that it runs."""


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


Displays = Callable[[], contextlib.AbstractContextManager[Display]]


def launch_resizing(
    resolved: ResolvedJob,
    hosts: Hosts,
    displays: Displays,
    page: StatusPage | None = None,
    outcome: Outcome | None = None,
) -> int:
    """Runs a job to its end, on more or fewer hosts when hosts are found or lost.

    Each part is a job of its own, with its ranks numbered anew. It continues from the checkpoint
    that the part before has left.

    Args:
        resolved: What to run. The first part has at least the size of this job.
        hosts: Names the hosts; it is closed when the job has ended.
        displays: Makes the display of each part.
        page: Shows all of them on the status page.
        outcome: Counts what the job comes to.

    Returns:
        The exit code of the last part; 1 if there were too few hosts for too long.

    Raises:
        HvdFtError: The job cannot change its size, or a part cannot be started.
    """
    with contextlib.closing(hosts):
        _check(resolved)
        with contextlib.closing(_Parts(resolved, hosts, displays, page, outcome)) as parts:
            return parts.run()


class _Parts:
    """Drives the machine of the parts; the driver of the running part asks it for changes."""

    def __init__(
        self,
        resolved: ResolvedJob,
        hosts: Hosts,
        displays: Displays,
        page: StatusPage | None,
        outcome: Outcome | None,
    ) -> None:
        job = resolved.job
        assert job.limits
        # A change of hosts is a preemption, which has a limit.
        grace = {} if resolved.settings.grace_seconds else {"HOROVOD_FT_GRACE_SECONDS": GRACE}
        self._whole = resolved.but(given={**grace, **job.given})
        self._hosts = hosts
        self._displays = displays
        self._page = page
        self._outcome = outcome or Outcome()
        path = job.given.get(RESUME_DIR)
        self._machine = PartsMachine(
            job.limits, job.size, path=path, random=random.random, now=time.monotonic()
        )
        self._lookups: dict[str, Apart[ResolvedJob]] = {}  # of hosts that are probed next
        self._probes: dict[str, reach.Probe] = {}
        self._latest = self._whole  # part
        self._code: int | None = None

    def close(self) -> None:
        """Ends the probes that are under way."""
        for probe in self._probes.values():
            probe.close()

    def run(self) -> int:
        """Runs parts until the job has ended; returns its exit code."""
        actions: list[parts_machine.Action] = []
        while self._code is None:
            actions += self._carry_out(actions.pop(0)) if actions else self._wait()
        return self._code

    def _wait(self) -> list[parts_machine.Action]:
        """Looks for hosts until the machine has an action."""
        with EventLoop() as loop, stop_signals() as signals:
            loop.watch(signals, lambda: signals.received)
            while not signals.received:
                if actions := self._look(time.monotonic()):
                    return actions
                loop.run_once(_LOOK_SECONDS)
            return self._machine.signalled(signals.received[0])

    def _look(self, now: float) -> list[parts_machine.Action]:
        found = self._hosts.poll(now)
        if found is not None:
            self._machine.named(found)
        actions = self._probe_next(now)
        for host, probe in list(self._probes.items()):
            if (reason := probe.result()) is not None:
                self._probes.pop(host).close()
                actions += self._machine.reached(host, reason, now)
        return actions + self._machine.time_passed(now)

    def _probe_next(self, now: float) -> list[parts_machine.Action]:
        """Begins to probe the hosts whose names have been looked up."""
        actions: list[parts_machine.Action] = []
        for host in [host for host, lookup in self._lookups.items() if lookup.has_ended]:
            try:
                there = self._lookups.pop(host).result
                self._probes[host] = reach.Probe(host, there.environment)
            except HvdFtError as error:
                actions += self._machine.reached(host, str(error), now)
        return actions

    def _carry_out(self, action: parts_machine.Action) -> list[parts_machine.Action]:
        """Carries out an action; returns the actions that follow from its outcome."""
        match action:
            case Say(text):
                say(text)
            case Probe(host):
                self._look_up(host)
            case BeginPart():
                return self._machine.part_ended(self._run_part(action), time.monotonic())
            case FindCheckpoint():
                return self._look_for_checkpoint()
            case EndParts(code):
                self._code = code
        return []

    def _look_up(self, host: str) -> None:
        """Resolves a job on this host too: mpirun has to listen where the host can answer.

        This runs in another thread, because a name server may not answer for long, and this loop
        renews the leases of the running part.
        """
        hosts, whole = [*self._latest.job.hosts, Host(host, 1)], self._whole
        self._lookups[host] = Apart(lambda: whole.but(hosts=hosts, machine_file=""))

    def _run_part(self, begin: BeginPart) -> End:
        with memory_file(machine_file(begin.hosts)) as machines:
            part = self._latest = self._part(begin, machines)
            if begin.number > 1 and begin.path is not None:
                self._outcome.continues_from(begin.path)
            with self._displays() as shown:
                ended = run_job(part, shown, resizing=self, page=self._page, outcome=self._outcome)
        self._outcome.hosts_lost(len(ended.lost))
        stays = not (ended.lost or ended.resized)
        if ended.code and stays and (text := how_to_go_on(part.settings)):
            say(text)
        return ended

    def _part(self, begin: BeginPart, machines: str) -> ResolvedJob:
        job, first = self._whole.job, begin.number == 1
        given = job.given if begin.path is None else {**job.given, RESUME_DIR: begin.path}
        return self._whole.but(
            id=job.id if first else new_job_id(),
            size=slots_of(begin.hosts),
            hosts=begin.hosts,
            machine_file=machines,
            report=part_name(job.report, begin.number),
            spare_hosts=[host for host in job.spare_hosts if host not in begin.hosts],
            inject=job.inject if first else (),
            given=given,
        )

    def _look_for_checkpoint(self) -> list[parts_machine.Action]:
        """Finds the checkpoint in another thread: a shared directory may not answer for minutes."""
        settings = self._whole.settings
        seconds = settings.host_timeout_seconds
        with EventLoop() as loop, stop_signals() as signals:
            loop.watch(signals, lambda: signals.received)
            stopped = lambda: bool(signals.received)  # noqa: E731
            try:
                path = call_apart(loop, self._find_checkpoint, seconds, stopped)
            except TimeoutError as error:
                if signals.received:
                    return self._machine.signalled(signals.received[0])
                raise HvdFtError(
                    f"{settings.checkpoint_dir} ({error}), so the job cannot continue from its "
                    "checkpoint: see that the directory answers, and give it to --resume"
                ) from None
        return self._machine.checkpoint_found(path, time.monotonic())

    def _find_checkpoint(self) -> str | None:
        """Returns the path of the checkpoint that the latest part has left."""
        directory = self._whole.settings.checkpoint_dir
        assert directory is not None
        found = [
            each
            for each in find(Path(directory))
            if each.manifest is not None
            and each.manifest.job == self._latest.job.id
            and not each.refused
        ]
        if not found:
            return None
        latest = found[-1].manifest
        assert latest is not None
        if latest.apart:
            raise HvdFtError(
                f"the job's hosts have a directory {directory} each, so nothing can continue on "
                "other hosts: give --checkpoint-dir one that all hosts share"
            )
        return str(found[-1].path)

    # -------------------------------------------------------------- as `Resizing`

    def change(self, now: float) -> HostChange | None:
        """As `Resizing.change`."""
        for action in self._look(now):
            if isinstance(action, ChangeHosts):
                return action.change
            self._carry_out(action)
        return None

    def left(self, names: Sequence[str], *, lost: bool) -> None:
        """As `Resizing.left`."""
        self._outcome.hosts_lost(len(names) if lost else 0)
        self._machine.left(names, time.monotonic(), lost=lost)

    def joined(self, hosts: Sequence[Host]) -> None:
        """As `Resizing.joined`."""
        self._machine.joined(hosts)


def part_name(report: str | None, number: int) -> str | None:
    """Returns the name of a part's report: `run.jsonl`, then `run-2.jsonl` and so on."""
    if report is None or number == 1:
        return report
    stem, suffix = os.path.splitext(report)
    return f"{stem}-{number}{suffix}"


def _check(resolved: ResolvedJob) -> None:
    """Checks that a job can change its size."""
    job = resolved.job
    assert job.limits
    job.limits.check(job.size)
    if resolved.settings.checkpoint_dir is None:
        raise HvdFtError(
            "--min-np: the job continues with fewer ranks from a checkpoint, and there is no "
            "directory for it; give --checkpoint-dir, which all hosts share"
        )
    if job.resume:
        raise HvdFtError(
            "--resume JOB with --min-np: that job's state is its hosts'; resume it without "
            "--min-np, or give --resume the directory of its checkpoints"
        )
