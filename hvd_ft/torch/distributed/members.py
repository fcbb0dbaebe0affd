"""The ranks of a process group, and their places in Horovod's process set of the same ranks.

Horovod numbers the ranks of a set in the order of their ranks in the job. A process group may have
another order (`new_group(sort_ranks=False)`).
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from horovod.common import process_sets
from horovod.common.process_sets import ProcessSet
from horovod.torch import mpi_ops

from hvd_ft.errors import HvdFtError

T = TypeVar("T")


class Members:
    """The ranks of a group.

    Args:
        ranks: of the job, by rank of the group.
        process_set: Horovod's, of these ranks.
    """

    def __init__(self, ranks: tuple[int, ...], process_set: Any) -> None:
        self._ranks = ranks
        self.process_set = process_set

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the job, by rank of the group."""
        return self._ranks

    def now(self, rank: int) -> int:
        """Returns the rank in the group of a process that joined it with this rank."""
        return rank

    def by_set(self, parts: Sequence[T]) -> list[T]:
        """Sorts what each rank of the group gets into the order of the process set."""
        return [part for _, part in sorted(zip(self.ranks, parts, strict=True), key=_first)]

    def by_group(self, parts: Sequence[T]) -> list[T]:
        """Sorts what came from each rank of the process set into the order of the group."""
        by_rank = dict(zip(sorted(self.ranks), parts, strict=True))
        return [by_rank[rank] for rank in self.ranks]

    @property
    def sorted(self) -> bool:
        """Whether both orders are the same."""
        return list(self.ranks) == sorted(self.ranks)


class AllMembers(Members):
    """All ranks of the job in their order; some may leave it and return to it.

    Args:
        size: how many there are.
    """

    def __init__(self, size: int) -> None:
        super().__init__(tuple(range(size)), process_sets.global_process_set)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks; after Horovod's shutdown those that there were."""
        if mpi_ops.is_initialized() and mpi_ops.size() != len(self._ranks):
            self._ranks = tuple(range(mpi_ops.size()))
        return self._ranks

    def now(self, rank: int) -> int:
        """Returns this process's rank; those that stay are numbered anew when others leave."""
        return int(mpi_ops.rank()) if mpi_ops.is_initialized() else rank


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


_sets: dict[tuple[int, ...], Any] = {}  # those that groups have made


def members(ranks: Sequence[int], size: int) -> Members:
    """Returns the members of a group; all ranks of the job must call it for the same ranks.

    Args:
        ranks: of the job, by rank of the group.
        size: number of ranks of the job.

    Raises:
        HvdFtError: Horovod was initialised without process sets that are added later.
    """
    key = tuple(sorted(ranks))
    if list(ranks) == list(range(size)):
        return AllMembers(size)
    if len(key) == size:
        return Members(tuple(ranks), process_sets.global_process_set)
    if key not in _sets:
        _sets[key] = _existing(key) or _added(key)
    return Members(tuple(ranks), _sets[key])


def _existing(key: tuple[int, ...]) -> Any:
    """Returns the set that the script has given to `hvd.init`, if any."""
    basics: Any = process_sets._basics
    for number, ranks in basics._get_process_set_ids_and_ranks().items():
        if number and tuple(ranks) == key:
            found = ProcessSet(list(key))
            found.process_set_id = number
            return found
    return None


def _added(key: tuple[int, ...]) -> Any:
    try:
        return process_sets.add_process_set(list(key))
    except ValueError as error:
        raise HvdFtError(
            f"no group of the ranks {list(key)} can be made, as Horovod is initialised without "
            "dynamic process sets: set HOROVOD_DYNAMIC_PROCESS_SETS=1, or call hvd.init() after "
            "the import of hvd_ft.torch.distributed"
        ) from error
