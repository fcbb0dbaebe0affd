"""What is read of a host before a job runs there. Nothing here is judged.

Sizes are in bytes; None stands for no limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """What a host leaves a job, as far as reading it takes no more than a moment.

    Attributes:
        ranks: That are to run there.
        cpus: That this process may use.
        cpu_quota: CPUs' worth of time that the control group allows.
        throttled: Periods in which that limit has stopped the group so far.
        periods: Of that many.
        open_files: The hard limit of a process.
        processes: Processes and threads that the user may have (ulimit -u).
        group_processes: Those that the control group may still start (pids.max).
        memory: That is left on the host.
        group_memory: That the control group leaves.
        arena_dir: Where arenas will be.
        arena: Bytes that are free there.
        arena_in_memory: Whether that is memory too.
    """

    ranks: int = 1
    cpus: int = 1
    cpu_quota: float | None = None
    throttled: int = 0
    periods: int = 0
    open_files: int | None = None
    processes: int | None = None
    group_processes: int | None = None
    memory: int = 0
    group_memory: int | None = None
    arena_dir: str = "/dev/shm"
    arena: int = 0
    arena_in_memory: bool = True


@dataclass(frozen=True)
class Network:
    """What there is between this host and others.

    Attributes:
        provider: Of libfabric, by name; "": Intel MPI chooses.
        why: It is that one.
        devices: InfiniBand and RoCE devices that the kernel shows here.
        device_files: Their files in /dev/infiniband.
        adapters: Such adapters on the PCI bus, with a driver or without.
        driver: Whether libibverbs can be found.
        locked_memory: That a process may lock.
        container: Whether this is a container.
    """

    provider: str = "tcp"
    why: str = ""
    devices: Sequence[str] = ()
    device_files: Sequence[str] = ()
    adapters: Sequence[str] = ()
    driver: bool = False
    locked_memory: int | None = None
    container: bool = False


@dataclass(frozen=True)
class Memory:
    """The NUMA nodes of a host.

    Attributes:
        nodes: That have memory.
        policy: Of what is started here, in Linux's words.
    """

    nodes: int = 1
    policy: str = "default"


@dataclass(frozen=True)
class Ring:
    """What MPI has given a job of two ranks.

    Attributes:
        in_use: Endpoints that a leader uses.
        endpoints: That MPI has; 1: its threads are not split.
        why: There are so few of either; "": there are not.
    """

    in_use: int
    endpoints: int
    why: str = ""


@dataclass(frozen=True)
class HostFacts:
    """Everything that is read of a host.

    Attributes:
        name: Its own.
        limits: What it leaves a job.
        network: Between it and others.
        memory: Its NUMA nodes.
        mpis: Folders of hvd_ft's MPI, then of all others in the user's paths, in their order.
        versions: Of what has to be the same everywhere, by name.
        wrong: Parts that are absent or do not fit, a line each.
    """

    name: str
    limits: Limits = field(default_factory=Limits)
    network: Network = field(default_factory=Network)
    memory: Memory = field(default_factory=Memory)
    mpis: Sequence[str] = ()

    versions: Mapping[str, str] = field(default_factory=dict)
    wrong: Sequence[str] = ()
