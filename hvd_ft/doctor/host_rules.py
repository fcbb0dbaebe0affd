"""Rules about a host's MPI, network and NUMA nodes: a finding of facts, or none. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hvd_ft.doctor.facts import HostFacts, Ring
from hvd_ft.doctor.finding import ERROR, NOTE, WARNING, Finding
from hvd_ft.doctor.limit_rules import LIMIT_RULES
from hvd_ft.mpi import fabric
from hvd_ft.mpi.variables import asks_debug, asks_unsplit

_LEAST_LOCKED = 1 << 30  # what rdma-core's documents ask for is "unlimited"
_DEVICES = "docker run --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1"
_HARMLESS = ("default", "bind", "local", "unknown")  # policies by which memory is near, if any is

HostRule = Callable[[HostFacts], Finding | None]


def several_mpis(host: HostFacts) -> Finding | None:
    """Paths lead to more than one MPI."""
    if len(host.mpis) < 2:
        return None
    return Finding(
        "several-mpis",
        WARNING,
        f"several MPIs are in the path: {', '.join(host.mpis)}",
        "a process that loads one MPI and is started by another fails, or runs as a job of its own",
        "leave one in PATH and LD_LIBRARY_PATH (module unload, conda remove), and start jobs with "
        "hvdft run, which takes hvd_ft's",
    )


def hidden_infiniband(host: HostFacts) -> Finding | None:
    """The bus has a fast adapter that the kernel does not show as one."""
    net = host.network
    if not net.adapters or net.devices:
        return None
    inside = "the container does not see them" if net.container else "no driver has them"
    return Finding(
        "hidden-infiniband",
        WARNING,
        f"there are InfiniBand or RoCE adapters at {', '.join(net.adapters)}, but {inside}",
        "MPI uses TCP between hosts, which is slower",
        f"start the container with them: {_DEVICES}"
        if net.container
        else "load the driver: modprobe mlx5_ib ib_uverbs",
    )


def infiniband_without_files(host: HostFacts) -> Finding | None:
    """The kernel shows devices, which processes cannot open."""
    net = host.network
    if not net.devices or net.device_files:
        return None
    return Finding(
        "infiniband-without-files",
        WARNING,
        f"this host has {', '.join(net.devices)}, but no file of it in /dev/infiniband",
        "MPI chooses by the devices that it sees, cannot open them, and fails or gets slower",
        f"give the container its devices ({_DEVICES}), or take TCP: FI_PROVIDER=tcp",
    )


def infiniband_without_library(host: HostFacts) -> Finding | None:
    """Devices can be opened, but the library that drives them is absent."""
    net = host.network
    if not net.device_files or net.driver:
        return None
    return Finding(
        "infiniband-without-library",
        WARNING,
        f"this host has {', '.join(net.device_files)}, but libibverbs.so.1 was not found",
        "MPI cannot use InfiniBand, and while it tries it may be slower than over TCP",
        "apt-get install ibverbs-providers libibverbs1 (in the container's image)",
    )


def locked_memory(host: HostFacts) -> Finding | None:
    """InfiniBand needs memory that stays where it is."""
    net = host.network
    if not net.device_files or net.locked_memory is None or net.locked_memory >= _LEAST_LOCKED:
        return None
    return Finding(
        "locked-memory",
        WARNING,
        f"a process may lock {net.locked_memory >> 10} KiB of memory",
        "InfiniBand transfers from and to locked memory only, so MPI fails or uses TCP",
        "ulimit -l unlimited; docker run --ulimit memlock=-1; LimitMEMLOCK=infinity of sshd",
    )


def numa_policy(host: HostFacts) -> Finding | None:
    """Memory does not lie where it is used."""
    policy = host.memory.policy
    if policy.partition(":")[0] in _HARMLESS:
        return None
    return Finding(
        "numa-policy",
        WARNING,
        f"the memory policy here is {policy}, neither default nor bind",
        "memory does not lie where it is used",
        "leave numactl out: hvdft run binds ranks and their memory itself (--bind-to)",
    )


def numa_nodes(host: HostFacts) -> Finding | None:
    """A rank may be far from its memory."""
    if host.memory.nodes < 2:
        return None
    return Finding(
        "numa-nodes",
        NOTE,
        f"this host has {host.memory.nodes} NUMA nodes",
        "a rank whose CPUs or memory are on two of them is slower than the others",
        "hvdft run --map-by numa; hvdft check --numa shows where a running job is",
    )


def parts(host: HostFacts) -> list[Finding]:
    """Returns a finding for each part that is absent or does not fit: its line has the remedy."""
    return [absent(line) for line in host.wrong]


def absent(line: str) -> Finding:
    """Returns the finding of an error's line: thing and reason, then behind `; ` the remedy."""
    what, _, remedy = line.rpartition("; ")
    if not what:
        what, _, remedy = line.rpartition(": ")
    return Finding("part", ERROR, what or line, "a job would end with this error", remedy)


def provider_without_endpoints(environ: Mapping[str, str]) -> Finding | None:
    """The user has named a provider by which a ring's threads share an endpoint."""
    why = fabric.why_no_endpoints(environ)
    if not why:
        return None
    return Finding(
        "provider",
        WARNING,
        why,
        "the threads of a ring share one MPI endpoint and take turns",
        "leave the variable out, or set FI_PROVIDER=tcp",
    )


def unsplit(environ: Mapping[str, str]) -> Finding | None:
    """The user has turned split threads off, which a job does not heed."""
    asked = asks_unsplit(environ)
    if not asked:
        return None
    return Finding(
        "thread-split",
        NOTE,
        f"{asked} is set",
        "it has no effect: hvdft run itself turns split threads on where MPI supports them",
        "unset it; HOROVOD_FT_ENDPOINTS=1 makes a ring use one endpoint",
    )


def debug_library(environ: Mapping[str, str]) -> Finding | None:
    """The user has chosen the library of MPI that checks everything."""
    asked = asks_debug(environ)
    if not asked:
        return None
    return Finding(
        "debug-library",
        WARNING,
        f"{asked} is set",
        "this debug library of Intel MPI checks every call, so it is slower",
        "unset the variable",
    )


def threads_not_split(ring: Ring) -> Finding | None:
    """MPI has given a real job one endpoint only."""
    if ring.endpoints > 1:
        return None
    return Finding(
        "not-split",
        WARNING,
        f"MPI gives threads no separate endpoints: {ring.why or 'the reason is not known'}",
        "a ring sends and receives in turn, over one endpoint",
        "set FI_PROVIDER=tcp, or a provider that can have several, and leave I_MPI_THREAD_* out",
    )


def one_endpoint_in_use(ring: Ring) -> Finding | None:
    """MPI could give more endpoints than a ring uses here."""
    if ring.in_use > 1 or ring.endpoints < 2:
        return None
    return Finding(
        "one-endpoint",
        NOTE,
        f"a ring of two ranks on this host uses one endpoint of MPI's {ring.endpoints}",
        ring.why,
        "HOROVOD_FT_ENDPOINTS=3 asks for more anyway; hvdft tune measures which is faster",
    )


HOST_RULES: tuple[HostRule, ...] = (
    *(several_mpis, hidden_infiniband, infiniband_without_files, infiniband_without_library),
    *(locked_memory, numa_policy, numa_nodes),
)
ENVIRONMENT_RULES = (provider_without_endpoints, unsplit, debug_library)
RING_RULES = (threads_not_split, one_endpoint_in_use)


def judge(host: HostFacts) -> list[Finding]:
    """Returns what the rules find of a host by itself."""
    found = [rule(host.limits) for rule in LIMIT_RULES] + [rule(host) for rule in HOST_RULES]
    return [*parts(host), *(finding for finding in found if finding)]
