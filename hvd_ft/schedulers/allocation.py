"""Reads from the environment which hosts a scheduler has given to this job. Pure.

| scheduler | hosts and slots | processes are started by |
|---|---|---|
| Slurm | `SLURM_JOB_NODELIST`, `SLURM_TASKS_PER_NODE` | `srun` |
| LSF | `LSB_MCPU_HOSTS`, or `LSB_HOSTS` | `blaunch` |
| PBS | the file `PBS_NODEFILE` | `pbsdsh` |
| SGE | the file `PE_HOSTFILE` | `qrsh` |
| none | the file `I_MPI_HYDRA_HOST_FILE`, as the MPI operator of Kubernetes gives it | `ssh` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import Host
from hvd_ft.mpi.variables import HOST_FILE, SLOTS
from hvd_ft.schedulers.host_ranges import expand_counts, expand_hosts

SLURM = "Slurm"


@dataclass(frozen=True)
class Allocation:
    """The allocation of a scheduler.

    Attributes:
        scheduler: its name.
        job: the scheduler's id of the job; "" if there is none.
        hosts: the hosts and their slots, each host once, in the scheduler's order.
        bootstrap: Hydra's name for the way to start processes there.
    """

    scheduler: str
    job: str
    hosts: tuple[Host, ...]
    bootstrap: str

    @property
    def slots(self) -> int:
        """The number of ranks for which there are slots."""
        return sum(host.slots for host in self.hosts)

    def first(self, size: int) -> tuple[Host, ...]:
        """Returns the hosts of the first `size` slots, without hosts that would have no rank.

        Raises:
            HvdFtError: there are fewer slots.
        """
        if size > self.slots:
            raise HvdFtError(
                f"-np {size}, but {self.scheduler} has allocated {self.slots} slots "
                f"({', '.join(map(str, self.hosts))}): ask it for more, or give -np {self.slots}"
            )
        taken, left = [], size
        for host in self.hosts:
            if left > 0:
                taken.append(Host(host.name, min(host.slots, left)))
                left -= host.slots
        return tuple(taken)


def read_allocation(
    environ: Mapping[str, str],
    read_text: Callable[[str], str],
    has_program: Callable[[str], bool],
) -> Allocation | None:
    """Reads the allocation in which this process runs.

    Args:
        environ: the environment of this process.
        read_text: returns the text of a file; raises OSError.
        has_program: returns whether a program is in PATH.

    Returns:
        The allocation; None outside an allocation.

    Raises:
        HvdFtError: the scheduler's variables contradict each other.
    """
    for variable, scheduler, job, bootstrap, program, read in _SCHEDULERS:
        if not environ.get(variable):
            continue
        try:
            hosts = _merged(read(environ, read_text))
        except (OSError, ValueError) as error:
            raise HvdFtError(
                f"{scheduler}'s allocation cannot be read from {variable}="
                f"{environ[variable]} ({error}): give -np and -H"
            ) from None
        by = bootstrap if not program or has_program(program) else "ssh"
        return Allocation(scheduler, environ.get(job, ""), hosts, by)
    return None


def _merged(entries: Iterable[tuple[str, int]]) -> tuple[Host, ...]:
    """Returns each host once, in the order of first entries, so that its ranks are consecutive."""
    slots: dict[str, int] = {}
    for name, count in entries:
        slots[name] = slots.get(name, 0) + count
    hosts = tuple(Host(name, count) for name, count in slots.items() if count > 0)
    if not hosts:
        raise ValueError("it has no hosts")
    return hosts


def _slurm(environ: Mapping[str, str], _: Callable[[str], str]) -> list[tuple[str, int]]:
    names = expand_hosts(environ["SLURM_JOB_NODELIST"])
    if int(environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
        raise ValueError(
            "srun has started hvdft run once for every task; start it once, without srun"
        )
    counts = expand_counts(environ.get("SLURM_TASKS_PER_NODE", "0"))
    if len(counts) != len(names):  # inside of a step of the job, the variable is the step's
        each = int(environ.get("SLURM_CPUS_PER_TASK", 1))
        cpus = expand_counts(environ.get("SLURM_JOB_CPUS_PER_NODE", "0"))
        counts = [max(count // each, 1) for count in cpus]
    if len(counts) != len(names):
        raise ValueError(f"it has {len(names)} hosts, but {len(counts)} numbers of tasks")
    return list(zip(names, counts, strict=True))


def _lsf(environ: Mapping[str, str], _: Callable[[str], str]) -> list[tuple[str, int]]:
    words = environ.get("LSB_MCPU_HOSTS", "").split()
    if words:  # host and slots by turns
        return [(name, int(slots)) for name, slots in zip(words[::2], words[1::2], strict=True)]
    return [(name, 1) for name in environ.get("LSB_HOSTS", "").split()]


def _pbs(environ: Mapping[str, str], read_text: Callable[[str], str]) -> list[tuple[str, int]]:
    return [(line, 1) for line in _lines(read_text(environ["PBS_NODEFILE"]))]


def _sge(environ: Mapping[str, str], read_text: Callable[[str], str]) -> list[tuple[str, int]]:
    lines = [line.split() for line in _lines(read_text(environ["PE_HOSTFILE"]))]
    return [(words[0], int(words[1])) for words in lines if _has_slots(words)]


def _host_file(
    environ: Mapping[str, str], read_text: Callable[[str], str]
) -> list[tuple[str, int]]:
    each = environ.get(SLOTS, "1")
    found = []
    for line in _lines(read_text(environ[HOST_FILE])):
        name, _, slots = line.split()[0].partition(":")
        found.append((name, int(slots or (each if each.isdecimal() else 1))))
    return found


def _has_slots(words: list[str]) -> bool:
    if len(words) < 2:
        raise ValueError(f"the line {' '.join(words)!r} has no number of slots")
    return True


def _lines(text: str) -> list[str]:
    stripped = (line.split("#")[0].strip() for line in text.splitlines())
    return [line for line in stripped if line]


# The variable that tells, the scheduler, the variable of the job's id, Hydra's bootstrap, the
# program that this one starts, what reads the hosts. The last one is no scheduler, so it is last.
_SCHEDULERS = (
    ("SLURM_JOB_NODELIST", SLURM, "SLURM_JOB_ID", "slurm", "srun", _slurm),
    ("LSB_JOBID", "LSF", "LSB_JOBID", "lsf", "blaunch", _lsf),
    ("PBS_NODEFILE", "PBS", "PBS_JOBID", "pbs", "pbsdsh", _pbs),
    ("PE_HOSTFILE", "SGE", "JOB_ID", "sge", "qrsh", _sge),
    (HOST_FILE, "the host file", "", "ssh", "", _host_file),
)
