"""The description of a job, its checks, and the command line that starts its agents."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.installed.environment import check_environment
from hvd_ft.job.arena_limit import arena_limit_bytes
from hvd_ft.job.directory import new_job_id
from hvd_ft.job.drills import check_ranks, parse
from hvd_ft.job.python_command import PythonCommand
from hvd_ft.job.settings import Settings
from hvd_ft.job.worker_environment import check_command
from hvd_ft.launcher.spare_hosts import check_fence
from hvd_ft.members.hosts import Host
from hvd_ft.members.resizing_rule import Limits
from hvd_ft.mpi import variables
from hvd_ft.mpi.environment import mpi_environment, mpiexec_command
from hvd_ft.mpi.fabric import choose_provider, fast_devices
from hvd_ft.mpi.listening import ALL, listen_address, listening_there, local_address
from hvd_ft.system.say import say

# Steps share the job's hosts with each other, and outlive the loss of one.
_SLURM = {"SLURM_OVERLAP": "1", "SLURM_NO_KILL": "set"}


@dataclass(frozen=True)
class Job:
    """What to run.

    Attributes:
        size: Number of ranks.
        command: The worker's command line, such as `["python", "train.py"]`.
        on_failure: Shell command that is run when a worker has died, or None.
        on_restart: Shell command that is run when a worker is back, or None.
        report: File for the events of the run, one JSON object a line, or None.
        inject: Drills, such as `rank=2,step=30,signal=KILL`.
        spares: Number of warm spares on the node.
        machine_file: mpirun's file with the hosts and their slots; None when all ranks are on this
            host.
        hosts: The hosts in that file.
        topology: `hierarchical` or `flat`; None: taken from the environment.
        id: The job's id; its directory is named after it.
        resume: Whether to resume the job with this id, which a lost host has ended.
        spare_hosts: Hosts that may replace those of `hosts`, in the order in which they are taken.
        given: Settings for this job alone, by environment variable: for checkpoints, network, CPUs
            and autotuning.
        limits: Limits of the number of ranks, if it changes when hosts are lost or found; None: the
            number is fixed.
        bootstrap: How Hydra starts processes on other hosts, unless the user says so; None: its
            default, ssh.
        verbose: Whether to print the command line that starts the agents.
        trace_ops: Whether the report has the times of single ops.
        mpi_args: Further words of mpirun's command line, before the agents' command.
    """

    size: int
    command: Sequence[str]
    on_failure: str | None = None
    on_restart: str | None = None
    report: str | None = None
    inject: Sequence[str] = ()
    spares: int = 0
    machine_file: str | None = None
    hosts: Sequence[Host] = ()
    topology: str | None = None
    id: str = field(default_factory=new_job_id)
    resume: bool = False
    spare_hosts: Sequence[Host] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    limits: Limits | None = None
    bootstrap: str | None = None
    verbose: bool = False
    trace_ops: bool = False
    mpi_args: Sequence[str] = ()

    def host_of(self, rank: int) -> str | None:
        """Returns the user's name for the host of a rank; None if there is none."""
        slots = [host.name for host in self.hosts for _ in range(host.slots)]
        return slots[rank] if rank < len(slots) else None


@dataclass(frozen=True)
class ResolvedJob:
    """A job, and everything that follows from it and from the user's environment.

    The code that describes a job calls `resolve` once and hands the result on. No later code
    reads the settings of the job a second time.

    Attributes:
        job: what to run.
        settings: those of the user's environment, and those given for the job.
        address: where the launcher and mpirun listen; "": on all interfaces.
        plain: the whole environment of those processes of the job that may listen anywhere.
        environment: the whole environment of mpirun and the agents, which listen at `address`.
    """

    job: Job
    settings: Settings
    address: str
    plain: Mapping[str, str]
    environment: Mapping[str, str]

    def but(self, **changes: Any) -> ResolvedJob:
        """Returns the same job with some fields changed.

        This may look up host names, which can take long.

        Args:
            changes: fields of `Job`.
        """
        return resolve(replace(self.job, **changes))


def resolve(job: Job) -> ResolvedJob:
    """Reads the settings of a job and determines its addresses and environment.

    Args:
        job: what to run.

    Raises:
        HvdFtError: a setting is wrong, Intel MPI is absent, or this host does not have the network
            interface that the user has named.
    """
    settings = Settings.from_env({**os.environ, **job.given})
    if job.spare_hosts or job.limits:
        check_fence(settings)
    address = _address(job, settings.interface)
    plain = _environment(job, settings)
    return ResolvedJob(job, settings, address, plain, listening_there(address, plain))


def check_job(resolved: ResolvedJob) -> None:
    """Checks as much as possible before anything is started; prints the command if `verbose`.

    Args:
        resolved: the job.

    Raises:
        HvdFtError: The job cannot be run.
    """
    job = resolved.job
    if job.size < 1:
        raise HvdFtError(f"-np {job.size}: a job has at least 1 rank; give -np 1 or more")
    check_ranks([parse(text) for text in job.inject], job.size)
    # The agents search for the command in the job's PATH, where this Python's programs come first.
    found = None
    if job.command:
        found = shutil.which(job.command[0], path=resolved.environment["PATH"])
    check_command([found or job.command[0], *job.command[1:]] if job.command else [])
    if job.spares:
        PythonCommand.parse([found or job.command[0], *job.command[1:]])
    check_environment()
    arena_limit_bytes(resolved.settings)
    if job.verbose:
        say(f"job {job.id}: {shlex.join(mpirun_command(job, resolved.environment))}")


def _environment(job: Job, settings: Settings) -> dict[str, str]:
    asked = {**os.environ, **job.given}
    environment = mpi_environment(job.machine_file is None, asked)
    topology = {"HOROVOD_FT_TOPOLOGY": job.topology} if job.topology else {}
    own = {**environment, **topology, "HOROVOD_FT_JOB": job.id}
    interface = settings.interface
    named = variables.on_interface(None if interface == ALL else interface)
    if settings.ports and job.machine_file is not None:
        named |= variables.in_ports(settings.ports)
    named |= variables.bootstrap(job.bootstrap)
    # mpirun would take the hosts of the user's file besides the job's.
    return {**named, **_SLURM, **variables.without_host_file(asked), **own}


def _address(job: Job, interface: str | None) -> str:
    if job.machine_file is None:
        return local_address(interface)
    names = tuple(host.name for host in (*job.hosts, *job.spare_hosts))
    return listen_address(names, interface)


def starts_by_slurm(environment: Mapping[str, str]) -> bool:
    """Returns whether Hydra starts processes through Slurm's srun in this environment."""
    return variables.bootstrap_of(environment) == "slurm"


def network_of(resolved: ResolvedJob) -> str:
    """Returns a line that says which network a job on several hosts uses, and why."""
    provider = choose_provider({**os.environ, **resolved.job.given}, fast_devices())
    address, interface = resolved.address, resolved.settings.interface
    why = f"HOROVOD_FT_INTERFACE={interface}" if interface else "the way to the other hosts"
    if not address:
        address = "all interfaces"
        why = why if interface else "no address of this host is known to lead to all others"
    ports = resolved.settings.ports
    where = f", ports {ports}" if ports else ""
    return f"network: {provider}; the launcher listens on {address} ({why}){where}"


def mpirun_command(job: Job, environment: Mapping[str, str]) -> list[str]:
    """Returns the command line that starts the agents of a job.

    Args:
        job: What to run.
        environment: The job's environment; Intel MPI is found by its PATH.

    Raises:
        HvdFtError: There is no Intel MPI.
    """
    command = mpiexec_command(job.size, environment)
    command += ["-machinefile", job.machine_file] if job.machine_file else []
    command += job.mpi_args
    command += [sys.executable, "-m", "hvd_ft.agent"]
    for flag, value in (
        ("--on-failure", job.on_failure),
        ("--on-restart", job.on_restart),
        ("--report", job.report),
        *(("--inject", drill) for drill in job.inject),
        ("--spares", str(job.spares) if job.spares else None),
    ):
        if value is not None:
            command += [flag, value]
    command += ["--trace-ops"] if job.trace_ops else []
    return [*command, "--", *job.command]
