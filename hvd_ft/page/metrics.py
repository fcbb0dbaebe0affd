"""A job's status as Prometheus's metrics; names and units by its conventions.

https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hvd_ft.job.page_messages import LinkState, LinkStatus
from hvd_ft.status.snapshot import JobState, JobStatus, NodeMemory, RankState

_NOT_KINDS = ("first_rank", "total", "most", "limit")


def metrics_page(status: JobStatus | None, links: Sequence[LinkStatus] = ()) -> bytes:
    """Returns the text that Prometheus scrapes.

    Args:
        status: of the job; None: there is none yet.
        links: between its nodes.
    """
    registry = CollectorRegistry()
    found = [*families(status), *_of_links(links, [status.job])] if status else []
    registry.register(_Families(found))
    return generate_latest(registry)


class _Families:
    """What a registry collects."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def families(status: JobStatus) -> Iterator[Metric]:
    """Yields the metrics of a job."""
    job = [status.job]
    yield _gauge(
        "hvdft_job_state",
        "Whether the job is in this state.",
        ("state",),
        [((state,), float(status.state == state)) for state in get_args(JobState)],
        job,
    )
    for name, text, value in (
        ("hvdft_job_ranks", "Number of ranks.", status.size),
        ("hvdft_job_step", "Step of the slowest rank that trains.", status.step),
        ("hvdft_job_generation", "Generation of the agents.", status.generation),
        ("hvdft_log_held_ops", "Operations that the op log holds.", status.log.held),
    ):
        yield _gauge(name, text, (), [((), float(value))], job)
    age = status.checkpoints.latest_seconds_ago
    yield _gauge(
        "hvdft_checkpoint_age_seconds",
        "Since the newest complete checkpoint.",
        (),
        [] if age is None else [((), age)],
        job,
    )
    for name, text, value in (
        ("hvdft_log_ops", "Operations that the op log has had.", status.log.ops),
        ("hvdft_checkpoints", "Complete checkpoints.", status.checkpoints.written),
        ("hvdft_divergences", "How often variables of ranks differed.", status.diverged),
    ):
        yield _counter(name, text, (), [((), float(value))], job)
    yield from _of_ranks(status, job)
    yield from _of_memory(status.memory, job)


def _of_ranks(status: JobStatus, job: Sequence[str]) -> Iterator[Metric]:
    yield _gauge(
        "hvdft_rank_state",
        "Whether the rank is in this state.",
        ("rank", "host", "state"),
        [
            ((str(rank.rank), rank.host or "", state), float(rank.state == state))
            for rank in status.ranks
            for state in get_args(RankState)
        ],
        job,
    )
    labels = ("rank", "host")
    of = [((str(rank.rank), rank.host or ""), rank) for rank in status.ranks]
    yield _gauge(
        "hvdft_rank_step", "Step of its loop.", labels, [(n, float(r.step)) for n, r in of], job
    )
    yield _gauge(
        "hvdft_rank_steps_per_second",
        "Speed of its loop.",
        labels,
        [(n, r.steps_per_second) for n, r in of if r.steps_per_second is not None],
        job,
    )
    yield _gauge(
        "hvdft_rank_state_seconds",
        "For how long it has been in its state.",
        labels,
        [(n, r.state_seconds) for n, r in of],
        job,
    )
    for kind, text in (
        ("compute", "Computing: until its script had handed over the last tensor."),
        ("wait", "Waiting for slower ranks."),
        ("copy", "Blocked by copies and sums on its node."),
        ("network", "Blocked until other nodes' parts of an operation came."),
    ):
        spent = [(n, float(getattr(r.times, f"{kind}_seconds"))) for n, r in of]
        yield _counter(f"hvdft_rank_{kind}_seconds", text, labels, spent, job)
    for name, text, values in (
        ("hvdft_rank_restarts", "Its restarts.", [(n, float(r.incarnation)) for n, r in of]),
        ("hvdft_rank_ops", "Operations that it has executed.", [(n, r.executed) for n, r in of]),
        ("hvdft_rank_snapshots", "Its snapshots.", [(n, r.snapshots.count) for n, r in of]),
    ):
        yield _counter(name, text, labels, values, job)


def _of_links(links: Sequence[LinkStatus], job: Sequence[str]) -> Iterator[Metric]:
    if not links:  # all ranks are on one node
        return
    labels = ("source", "dest", "kind")
    of = [((link.source, link.dest, link.kind), link) for link in links]
    yield _gauge(
        "hvdft_link_state",
        "Whether the link between two nodes is in this state.",
        (*labels, "state"),
        [
            ((*names, state), float(link.state == state))
            for names, link in of
            for state in get_args(LinkState)
        ],
        job,
    )
    yield _gauge(
        "hvdft_link_stalled_seconds",
        "For how long a transfer has been under way without anything arriving.",
        labels,
        [(names, link.stalled_seconds) for names, link in of],
        job,
    )
    yield _counter(
        "hvdft_link_transfers",
        "Transfers that have arrived in this generation of agents.",
        labels,
        [(names, float(link.transfers)) for names, link in of],
        job,
    )


def _of_memory(memory: Sequence[NodeMemory], job: Sequence[str]) -> Iterator[Metric]:
    kinds = [name for name in NodeMemory.__struct_fields__ if name not in _NOT_KINDS]
    yield _gauge(
        "hvdft_memory_bytes",
        "Memory of a node's arenas, by kind.",
        ("first_rank", "kind"),
        [
            ((str(node.first_rank), kind), float(getattr(node, kind)))
            for node in memory
            for kind in kinds
        ],
        job,
    )
    yield _gauge(
        "hvdft_memory_limit_bytes",
        "What a node's arenas may take.",
        ("first_rank",),
        [((str(node.first_rank),), float(node.limit)) for node in memory],
        job,
    )


_Values = Sequence[tuple[tuple[str, ...], float]]


def _gauge(
    name: str, text: str, labels: Sequence[str], values: _Values, job: Sequence[str]
) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=["job_id", *labels]), values, job)


def _counter(
    name: str, text: str, labels: Sequence[str], values: _Values, job: Sequence[str]
) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=["job_id", *labels]), values, job)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, values: _Values, job: Sequence[str]
) -> Metric:
    for labels, value in values:
        family.add_metric([*job, *labels], value)
    return family
