"""`hvdft check --numa`: the host's topology, where a job's processes are, and problems."""

import os
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from hvd_ft.doctor.facts import HostFacts
from hvd_ft.doctor.host_rules import several_mpis
from hvd_ft.errors import HvdFtError
from hvd_ft.job.running import find_job, running_jobs
from hvd_ft.job.settings import Settings
from hvd_ft.mpi.in_paths import mpis_in_path
from hvd_ft.mpi.variables import asked_binding
from hvd_ft.system.process_placement import memory_of, policy_of
from hvd_ft.system.topology import Topology, read_topology
from hvd_ft.tools.check.numa_advice import advice
from hvd_ft.tools.check.placed import WORKER, Placed, look

_TABLE_COLUMNS = 120  # of the processes
_VARIABLES = (
    *("HOROVOD_FT_BIND_TO", "HOROVOD_FT_MAP_BY", "I_MPI_PIN"),
    *("I_MPI_PIN_DOMAIN", "OMPI_MCA_hwloc_base_binding_policy"),
    "OMPI_MCA_rmaps_base_mapping_policy",
)


def check_numa(job: str, console: Console) -> list[str]:
    """Shows this host, and a job that runs on it.

    Args:
        job: the job's id or directory; "": the only job that runs here, if there is one.
        console: the console to print on.

    Returns:
        The problems, one line each.

    Raises:
        HvdFtError: there is no such job.
    """
    topology = read_topology()
    policy = policy_of(memory_of(os.getpid()))

    def line(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    console.print(topology_table(topology))
    line(f"memory policy of what is started here: {policy}")
    processes: list[Placed] = []
    environ: Mapping[str, str] = os.environ
    jobs = running_jobs(Settings.from_env(os.environ).arena_dir)
    if job or len(jobs) == 1:
        directory = find_job(job or None)
        processes = look(directory)
        if not processes:
            raise HvdFtError(
                f"no process of the job in {directory} can be seen: run this as its user, on its "
                "host, while it runs"
            )
        environ = next((p.environ for p in processes if p.role != WORKER), environ)
        of_job = Settings.from_env(environ)
        line(f"the job: {asked_text(of_job.bind_to, of_job.map_by, environ)}")
        # On a narrow terminal lines are broken, not words left out.
        width = max(console.width, _TABLE_COLUMNS)
        console.print(processes_table(topology, processes), width=width, crop=False)
    else:
        map_by = Settings.from_env(environ).map_by
        line(f"hvdft run would take {asked_text(asked_binding(environ), map_by, environ)}")
        found = ", ".join(jobs) or "none"
        line(f"no job was named; running here: {found} (hvdft check --numa JOB shows one)")
    several = several_mpis(HostFacts("", mpis=mpis_in_path(os.environ)))
    hurts = advice(topology, processes, policy=policy, environ=environ)
    return [*hurts, *([several.line] if several else [])]


def asked_text(bind_to: str, map_by: str, environ: Mapping[str, str]) -> str:
    """Returns how ranks are bound, and the variables that ask for it.

    Args:
        bind_to: the resource to which ranks are bound.
        map_by: the resource by which ranks are mapped.
        environ: environment variables of a job, or for one.
    """
    given = [f"{name}={environ[name]}" for name in _VARIABLES if environ.get(name)]
    how = f"--bind-to {bind_to} --map-by {map_by}"
    return f"{how} ({' '.join(given)})" if given else how


def topology_table(topology: Topology) -> Table:
    """Puts the NUMA nodes of a host into a table, one a row; one without NUMA is one node."""
    table = Table(box=None, header_style="")
    for name in ("NUMA node", "socket", "cores", "CPUs", "memory", "distances"):
        table.add_column(name)
    for node in sorted({cpu.node for cpu in topology.cpus} | {*topology.memory}):
        cpus = [cpu for cpu in topology.cpus if cpu.node == node]
        size = topology.memory.get(node)
        table.add_row(
            str(node),
            spans({cpu.socket for cpu in cpus}),
            str(len({cpu.core for cpu in cpus})),
            spans({cpu.number for cpu in cpus}),
            f"{size / (1 << 30):.1f} GiB" if size else "none" if topology.memory else "unknown",
            " ".join(map(str, topology.distances.get(node, {}).values())),
        )
    return table


def processes_table(topology: Topology, processes: Sequence[Placed]) -> Table:
    """Puts a job's processes into a table, and the threads that speak MPI below their agent."""
    table = Table(box=None, header_style="")
    for name in ("rank", "process", "CPUs", "NUMA", "ran on", "policy"):
        table.add_column(name)
    for name in ("own MiB", "input, snapshots", "log, results"):
        table.add_column(name, justify="right")

    def place(cpus: frozenset[int]) -> tuple[str, str]:
        return spans(cpus), spans(topology.nodes_of(cpus))

    for process in processes:
        ran = {thread.last_cpu for thread in process.threads}
        table.add_row(
            str(process.rank),
            f"{process.role} {process.pid}",
            *place(process.cpus),
            spans(ran),
            process.policy,
            *(megabytes(held) for held in (process.own, process.area, process.results)),
        )
        for thread in process.leader_threads:
            table.add_row("", f"  {thread.name}", *place(thread.cpus), str(thread.last_cpu))
    return table


def spans(values: set[int] | frozenset[int]) -> str:
    """Returns numbers as Linux lists them, such as `0-3,8`."""
    words: list[str] = []
    first = None
    for value in sorted(values):
        if first is None or value - 1 not in values:
            first = value
        if value + 1 not in values:
            words.append(str(value) if first == value else f"{first}-{value}")
    return ",".join(words)


def megabytes(held: Mapping[int, int]) -> str:
    """Returns the MiB on each NUMA node that has some."""
    parts = [f"N{node}: {size / (1 << 20):.1f}" for node, size in sorted(held.items()) if size]
    return ", ".join(parts) or "-"
