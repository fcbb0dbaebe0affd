"""Names of collectives that the script does not name.

Horovod names such a collective by the number of its handle, which counts all collectives of the
process. A restarted process continues after its snapshot's collectives without having made them,
so its handles have other numbers than those of the other ranks, and no name would match. Here a
count for each process set takes the place of the handle, and the count is part of every snapshot.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from horovod.torch import mpi_ops

OPERATIONS = (
    "_allreduce_async",
    "_grouped_allreduce_async",
    "_allgather_async",
    "_grouped_allgather_async",
    "_broadcast_async",
    "_alltoall_async",
    "_reducescatter_async",
    "_grouped_reducescatter_async",
)

_counts: dict[str, int] = {}  # by scope: of unnamed collectives, a process set


def name_operations_by_count() -> None:
    """Replaces the functions through which all of Horovod's collectives for tensors go."""
    for name in OPERATIONS:
        operation = getattr(mpi_ops, name)
        if not hasattr(operation, "__wrapped__"):
            setattr(mpi_ops, name, _named(operation))


def count(scope: str) -> int:
    """Returns how many collectives of a scope this process has named before, and counts one."""
    number = _counts.get(scope, 0)
    _counts[scope] = number + 1
    return number


def counts() -> list[list[Any]]:
    """Returns the counts as pairs of scope and count, for a snapshot."""
    return [list(pair) for pair in sorted(_counts.items())]


def restore_counts(state: list[list[Any]]) -> None:
    """Sets the counts that `counts` returned."""
    _counts.clear()
    _counts.update({scope: number for scope, number in state})


def in_flight() -> int:
    """Returns how many collectives have a handle that the script has not synchronised yet."""
    return len(mpi_ops._handle_map)


def _named(operation: Callable[..., int]) -> Callable[..., int]:
    parameters = list(inspect.signature(operation).parameters)
    name_at, set_at = parameters.index("name"), parameters.index("process_set")

    @functools.wraps(operation)
    def start(*arguments: Any) -> int:  # Horovod gives all of them by position
        if arguments[name_at] is not None:
            return operation(*arguments)
        scope = f"noname.{arguments[set_at].process_set_id}"
        name = f"{scope}.{count(scope)}"
        return operation(*arguments[:name_at], name, *arguments[name_at + 1 :])

    return start
