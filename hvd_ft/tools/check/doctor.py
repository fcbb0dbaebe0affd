"""Examines the installation, this host and the hosts of a job, and gathers what is found."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hvd_ft.doctor import host_rules
from hvd_ft.doctor.between_rules import Seen, compare
from hvd_ft.doctor.facts import HostFacts, Limits
from hvd_ft.doctor.finding import Finding, gathered
from hvd_ft.doctor.model_rules import MODEL_RULES, Model
from hvd_ft.doctor.read_host import read_host
from hvd_ft.errors import HvdFtError
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.host_names import all_here
from hvd_ft.launcher.job import Job, resolve
from hvd_ft.members.hosts import Host, machine_file
from hvd_ft.system.memory_file import memory_file
from hvd_ft.tools.check import self_check
from hvd_ft.tools.check.check_output import host_line, network_line
from hvd_ft.tools.check.job_hosts import look_at
from hvd_ft.tools.check.two_ranks import ring_of

Show = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What the user wants to know.

    Attributes:
        hosts: Of the job, each once with its ranks; none: this one.
        size: Of the job; None: every slot takes a rank.
        params: Of the model; None: unknown.
    """

    hosts: Sequence[Host] = ()
    size: int | None = None
    params: int | None = None


@dataclass
class Examined:
    """What has come of it.

    Attributes:
        parts: Of the installation, a line each.
        wrong: With the installation, a line each with its remedy.
        here: This host; None: it could not be read.
        seen: Of the job's hosts; None: all ranks are here.
        findings: Of all, the gravest first.
    """

    parts: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    here: HostFacts | None = None
    seen: Seen | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def named(self) -> set[str]:
        """What the lines of `wrong` say already."""
        return {host_rules.absent(line).what for line in self.wrong}


def examine(wanted: Wanted, show: Show) -> Examined:
    """Examines everything.

    Args:
        wanted: By the user.
        show: Is called with a line for every part that is found.
    """
    done = Examined()
    environ = dict(os.environ)
    found: list[Finding] = []
    unread = ""
    elsewhere = not all_here(wanted.hosts)
    ranks = sum(host.slots for host in wanted.hosts) or wanted.size or 1
    try:
        done.here = read_host(1 if elsewhere else ranks, environ)
    except HvdFtError as error:
        unread = str(error)

    def part(line: str) -> None:
        done.parts.append(line)
        show(line)

    if done.here:
        part(host_line(done.here))
        part(network_line(done.here.network))
    done.wrong = self_check.check_installation(part)
    if unread and not done.wrong:
        done.wrong.append(unread)
    found += map(host_rules.absent, done.wrong)
    found += _of_environment(environ)
    found += _of_ring(done.parts)
    if done.here:
        found += host_rules.judge(done.here)
        if wanted.params and not elsewhere:
            found += _of_model(done.here.limits, wanted.params, 1, environ)
    if elsewhere:
        with contextlib.suppress(HvdFtError):  # of what is in `wrong` already
            environment = _environment(wanted.hosts)
            done.seen = look_at(wanted.hosts, environment, show)
            found += _of_hosts(done.seen, wanted.params, environ)
    done.findings = gathered(found)
    return done


def _environment(hosts: Sequence[Host]) -> Mapping[str, str]:
    """Returns that of mpirun in a job on these hosts."""
    with memory_file(machine_file(hosts)) as machines:
        size = sum(host.slots for host in hosts)
        job = Job(size, ["true"], hosts=hosts, machine_file=machines)
        return resolve(job).environment


def _of_environment(environ: Mapping[str, str]) -> list[Finding]:
    found = [rule(environ) for rule in host_rules.ENVIRONMENT_RULES]
    return [finding for finding in found if finding]


def _of_ring(parts: Sequence[str]) -> list[Finding]:
    rings = [ring for part in parts if (ring := ring_of(part))]
    found = [rule(ring) for ring in rings for rule in host_rules.RING_RULES]
    return [finding for finding in found if finding]


def _of_model(limits: Limits, params: int, nodes: int, environ: Mapping[str, str]) -> list[Finding]:
    settings = Settings.from_env(environ)
    model = Model(params, nodes, settings.log_steps, settings.arena_bytes)
    found = [rule(limits, model) for rule in MODEL_RULES]
    return [finding for finding in found if finding]


def _of_hosts(seen: Seen, params: int | None, environ: Mapping[str, str]) -> list[Finding]:
    found = compare(seen)
    for name, facts in seen.facts.items():
        of_host = host_rules.judge(facts)
        if params:
            of_host += _of_model(facts.limits, params, len(seen.facts), environ)
        found += [finding.on(name) for finding in of_host]
    return found
