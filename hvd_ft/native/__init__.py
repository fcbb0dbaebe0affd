"""The Python interface to the core: the names of its modules and of `types`."""

from hvd_ft.native.agent import Agent, create_node, create_rank
from hvd_ft.native.core import (
    Worker,
    become_subreaper,
    die_with_parent,
    failpoint,
    in_job,
    is_attached,
    version,
    worker,
)
from hvd_ft.native.numa import files_on
from hvd_ft.native.observer import Observer
from hvd_ft.native.types import (
    Event,
    EventType,
    Log,
    Memory,
    Point,
    Snapshot,
    Snapshots,
    State,
    Status,
    WaitResult,
    Watch,
)

__all__ = [
    "Agent",
    "Event",
    "EventType",
    "Log",
    "Memory",
    "Observer",
    "Point",
    "Snapshot",
    "Snapshots",
    "State",
    "Status",
    "WaitResult",
    "Watch",
    "Worker",
    "become_subreaper",
    "create_node",
    "create_rank",
    "die_with_parent",
    "failpoint",
    "files_on",
    "in_job",
    "is_attached",
    "version",
    "worker",
]
