"""Rules about a host's limits: each makes a finding of facts, or none. Pure.

`hvdft run` goes by those of `CHEAP` before it starts a job, of which it knows no more than the
number of ranks: so they find only what is nearly certain to hurt.
"""

from __future__ import annotations

from collections.abc import Callable

from hvd_ft.doctor.facts import Limits
from hvd_ft.doctor.finding import ERROR, NOTE, WARNING, Finding
from hvd_ft.system.byte_size import in_words

# Estimates. A loop of TensorFlow 2.15 on 2 CPUs has 7 threads, its agent 3 and its shim 1; each
# pool that tf.data or Keras makes besides has a thread a CPU.
_THREADS, _THREADS_A_CPU = 30, 3
PROCESSES_A_RANK = 3  # worker, shim, agent
# A worker with a small model takes 310 MiB (its share of what processes share counted), its agent
# 23 and its shim 14.
RANK_BYTES = 384 << 20
_DESCRIPTORS = 64  # of the launcher, besides one a rank (job/lifeline.py)
_THROTTLED_SHARE = 0.05
_MANY_PERIODS = 100  # 10 s of work

LimitRule = Callable[[Limits], Finding | None]


def threads_of(limits: Limits) -> int:
    """Returns about how many processes and threads the ranks of a host will have."""
    return limits.ranks * (_THREADS + _THREADS_A_CPU * limits.cpus)


def open_files(limits: Limits) -> Finding | None:
    """The launcher has a connection to every rank."""
    need = limits.ranks + _DESCRIPTORS
    if limits.open_files is None or limits.open_files >= need:
        return None
    return Finding(
        "open-files",
        ERROR,
        f"a process may have {limits.open_files} open files, and {_ranks(limits)} need {need}",
        "the launcher needs a connection to each rank, and refuses to start a job without them",
        "raise the hard limit: ulimit -Hn, LimitNOFILE= of a service, docker run --ulimit nofile=",
    )


def processes(limits: Limits) -> Finding | None:
    """The user may start few more processes."""
    remedy = "raise it: ulimit -u, nproc in /etc/security/limits.conf"
    allowed = "ulimit -u allows this user {} processes and threads"
    return _few_processes("processes", allowed, limits.processes, limits, remedy)


def group_processes(limits: Limits) -> Finding | None:
    """The control group may have few more processes."""
    remedy = "raise it: docker run --pids-limit, podPidsLimit of the kubelet, TasksMax= of systemd"
    allowed = "the control group allows {} more processes and threads"
    return _few_processes("group-processes", allowed, limits.group_processes, limits, remedy)


def _ranks(limits: Limits) -> str:
    return f"{limits.ranks} rank{'s' * (limits.ranks > 1)}"


def _few_processes(
    kind: str, allowed: str, left: int | None, limits: Limits, remedy: str
) -> Finding | None:
    need = threads_of(limits)
    if left is None or left >= need:
        return None
    return Finding(
        kind,
        ERROR if left < PROCESSES_A_RANK * limits.ranks else WARNING,
        f"{allowed.format(left)}, and {_ranks(limits)} take about {need}",
        "TensorFlow ends with 'Resource temporarily unavailable' when it can start no thread",
        remedy,
    )


def cpu_share(limits: Limits) -> Finding | None:
    """The control group allows less than a CPU a rank, though there are more."""
    quota = limits.cpu_quota
    if quota is None or quota >= min(limits.ranks, limits.cpus):
        return None
    return Finding(
        "cpu-share",
        WARNING,
        f"the control group allows {quota:.3g} CPUs of time for {_ranks(limits)}, "
        f"and {limits.cpus} CPUs can be seen",
        "each rank is stopped for a part of every 0.1 s, and all others wait for it",
        "raise the limit: docker run --cpus, resources.limits.cpu of a pod; or start fewer ranks",
    )


def cpu_quota(limits: Limits) -> Finding | None:
    """TensorFlow starts a thread for each CPU that it sees, and all share the quota."""
    quota = limits.cpu_quota
    if quota is None or quota >= limits.cpus or cpu_share(limits):
        return None
    return Finding(
        "cpu-quota",
        WARNING,
        f"the control group allows {quota:.3g} CPUs of time, and {limits.cpus} CPUs can be seen",
        "TensorFlow starts threads for all of them, which use the time up and are then stopped",
        "give whole CPUs instead: docker run --cpuset-cpus, the kubelet's static CPU policy",
    )


def throttled(limits: Limits) -> Finding | None:
    """The limit of CPU time has stopped this group often."""
    if limits.periods < _MANY_PERIODS or limits.throttled < _THROTTLED_SHARE * limits.periods:
        return None
    return Finding(
        "throttled",
        WARNING,
        f"the limit of CPU time has stopped this control group in {limits.throttled} of "
        f"{limits.periods} periods",
        "a rank that is stopped holds all others up",
        "raise the limit: docker run --cpus, resources.limits.cpu of a pod",
    )


def crowded(limits: Limits) -> Finding | None:
    """There are more ranks than CPUs."""
    if limits.ranks <= limits.cpus:
        return None
    return Finding(
        "crowded",
        NOTE,
        f"{limits.ranks} ranks share {limits.cpus} CPU{'s' * (limits.cpus > 1)}",
        "they take turns, so a step takes longer; the result is the same",
        "start fewer ranks here: -np, -H",
    )


def host_memory(limits: Limits) -> Finding | None:
    """The host has too little memory for processes that have imported TensorFlow."""
    remedy = "start fewer ranks here, or end what else takes memory"
    return _little_memory("memory", "this host", limits.memory, limits, remedy)


def group_memory(limits: Limits) -> Finding | None:
    """The control group allows too little memory for these processes."""
    remedy = "raise it: docker run --memory, resources.limits.memory of a pod, sbatch --mem"
    return _little_memory("group-memory", "the control group", limits.group_memory, limits, remedy)


def _little_memory(
    kind: str, whose: str, left: int | None, limits: Limits, remedy: str
) -> Finding | None:
    need = limits.ranks * RANK_BYTES
    if left is None or left >= need:
        return None
    return Finding(
        kind,
        WARNING,
        f"{whose} has {in_words(left)} of memory left, and {_ranks(limits)} with "
        f"TensorFlow take about {in_words(need)} without a model",
        "the kernel kills what takes more",
        remedy,
    )


# What can be said of a job in a line before it starts; what has an error of its own is left out.
CHEAP: tuple[LimitRule, ...] = (group_processes, processes, group_memory, host_memory, cpu_share)
LIMIT_RULES: tuple[LimitRule, ...] = (
    *(open_files, processes, group_processes, host_memory, group_memory),
    *(cpu_share, cpu_quota, throttled, crowded),
)
