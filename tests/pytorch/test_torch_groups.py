"""The parts of a process group that need no job: its members, its operations and its store."""

import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from horovod.common import process_sets

from hvd_ft.errors import HvdFtError
from hvd_ft.torch import op_names
from hvd_ft.torch.distributed import members as members_module
from hvd_ft.torch.distributed import operations as operations_module
from hvd_ft.torch.distributed import rendezvous
from hvd_ft.torch.distributed.group import FtGroup
from hvd_ft.torch.distributed.members import Members, members
from hvd_ft.torch.distributed.operations import Operations
from hvd_ft.torch.distributed.store import is_own, own_store
from hvd_ft.torch.distributed.work import Finisher
from hvd_ft.torch.wrapped import Wrapper

SECONDS = 60.0


def test_parts_are_sorted_into_the_set_and_back() -> None:
    its = Members((5, 2, 9), None)
    assert not its.sorted
    assert Members((2, 5, 9), None).sorted
    by_set = its.by_set(["of 5", "of 2", "of 9"])
    assert by_set == ["of 2", "of 5", "of 9"]
    assert its.by_group(by_set) == ["of 5", "of 2", "of 9"]


@pytest.fixture(name="sets")
def horovods_sets(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Horovod has a set of the ranks 0 and 1; returns those that are added."""
    added: list[list[int]] = []

    def add(ranks: list[int]) -> Any:
        if 7 in ranks:
            raise ValueError("process sets cannot be added")
        added.append(ranks)
        return process_sets.ProcessSet(ranks)

    existing = SimpleNamespace(
        _get_process_set_ids_and_ranks=lambda: {0: [0, 1, 2, 3], 1: [0, 1]},
    )
    monkeypatch.setattr(members_module, "_sets", {})
    monkeypatch.setattr(process_sets, "_basics", existing)
    monkeypatch.setattr(process_sets, "add_process_set", add)
    return added


def test_a_group_takes_the_set_that_there_is(sets: list[list[int]]) -> None:
    assert members([3, 2, 1, 0], 4).process_set is process_sets.global_process_set
    assert members([1, 0], 4).process_set.process_set_id == 1
    assert sets == []


def test_a_set_is_added_once_for_all_orders(sets: list[list[int]]) -> None:
    its = members([3, 1], 4)
    assert its.ranks == (3, 1)
    assert members([1, 3], 4).process_set is its.process_set
    assert sets == [[1, 3]]


def test_no_set_can_be_added(sets: list[list[int]]) -> None:
    with pytest.raises(HvdFtError, match="set HOROVOD_DYNAMIC_PROCESS_SETS=1"):
        members([1, 7], 8)


def test_all_ranks_are_those_that_there_are_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setattr(members_module, "mpi_ops", now)
    group = FtGroup("0", 0, members(range(3), 3), 2)
    assert (group.rank(), group.size()) == (2, 3)
    now.__dict__.update(is_initialized=lambda: True, size=lambda: 2, rank=lambda: 1)
    assert (group.rank(), group.size()) == (1, 2)  # the rank before it has left
    assert group._its.by_set(["a", "b"]) == ["a", "b"]
    now.is_initialized = lambda: False  # and no function can be asked
    assert group.size() == 2


class Horovod:
    """Starts allreduces, and notes their names; each is done at once."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.refuses = self.fails = False
        self.done = threading.Event()
        self.done.set()

    def allreduce_async_(self, tensor: torch.Tensor, name: str, **_: Any) -> int:
        if self.refuses:
            raise ValueError("no")
        self.names.append(name)
        return len(self.names)

    def synchronize(self, handle: int) -> None:
        assert self.done.wait(SECONDS)
        if self.fails:
            fail(handle)


@pytest.fixture(name="horovod")
def stand_for_horovod(monkeypatch: pytest.MonkeyPatch) -> Iterator[Horovod]:
    horovod = Horovod()
    monkeypatch.setattr(operations_module, "horovod", horovod)
    monkeypatch.setattr(operations_module.mpi_ops, "synchronize", horovod.synchronize)
    op_names.restore_counts([])
    yield horovod
    op_names.restore_counts([])


def reduce(operations: Operations, elements: int = 3) -> Any:
    return operations.reduce(torch.zeros(elements), 1)


def test_names_recur_by_kind(horovod: Horovod) -> None:
    operations = Operations("0", Members((0, 1), None))
    for elements in (3, 4, 3):
        operations.result(reduce(operations, elements))
    three, four, again = horovod.names
    assert three.rpartition(".")[0] == again.rpartition(".")[0] != four.rpartition(".")[0]
    for _ in range(6):
        operations.result(reduce(operations))
    operations.result(reduce(operations))
    assert horovod.names.count(three) == 2


def test_an_operation_that_is_not_started_takes_no_name(horovod: Horovod) -> None:
    operations = Operations("0", Members((0, 1), None))
    horovod.refuses = True
    for _ in range(8):
        with pytest.raises(ValueError, match="no"):
            reduce(operations)
    horovod.refuses = False
    operations.result(reduce(operations))  # would wait for the first for ever
    assert len(horovod.names) == 1


def test_a_callback_cannot_start_an_operation(horovod: Horovod) -> None:
    operations = Operations("0", Members((0, 1), None))
    works = Finisher(operations)
    held = torch.futures.Future()

    def chained(_: Any) -> Any:
        return reduce(operations)

    work = works.work([reduce(operations)], lambda _: held.wait(), [torch.ones(1)])
    then = work.get_future().then(chained)
    held.set_result(None)
    with pytest.raises(RuntimeError, match="cannot start collectives on the backend hvd_ft"):
        then.wait()
    later = works.work([reduce(operations)], lambda _: None, [torch.ones(1)])
    assert later.get_future().wait()[0].item() == 1.0
    assert len(horovod.names) == 2


def fail(_: Any) -> None:
    raise HvdFtError("a result does not fit")


def test_an_error_is_that_of_the_future() -> None:
    works = Finisher(Operations("0", Members((0, 1), None)))
    with pytest.raises(RuntimeError, match="a result does not fit"):
        works.work([], fail, []).get_future().wait()
    assert works.work([], lambda _: None, []).get_future().wait() == []


@pytest.fixture(name="group")
def group_of_two() -> FtGroup:
    return FtGroup("0", 0, Members((0, 1), None), 0)


def test_a_synchronous_collective_raises_its_error(group: FtGroup, horovod: Horovod) -> None:
    horovod.fails = True
    options = dist.AllreduceOptions()
    options.asyncOp = False
    with pytest.raises(HvdFtError, match="a result does not fit"):
        group.allreduce([torch.ones(1)], options)
    horovod.fails = False
    group.allreduce([torch.ones(1)], options)


def test_an_error_of_one_that_is_awaited_is_raised_by_the_next(
    group: FtGroup, horovod: Horovod
) -> None:
    horovod.fails = True
    horovod.done.clear()
    work = group.allreduce([torch.ones(1)])
    horovod.done.set()
    assert work.wait()
    horovod.fails = False
    with pytest.raises(HvdFtError, match="a result does not fit"):
        group.allreduce([torch.ones(1)])


def test_a_first_pass_reduces_its_map_once_in_a_job(group: FtGroup, horovod: Horovod) -> None:
    record = Wrapper(weakref.ref(group))
    for earlier in (0, 1):  # the process that makes the pass, and one that has made it before
        used, gradient = torch.tensor([1, 0], dtype=torch.int32), torch.ones(2)
        with group.first_pass(record):
            group.allreduce([used]).wait()
            group.allreduce([gradient]).wait()
        assert ["int32" in name for name in horovod.names] == [True, False, False][: 2 + earlier]
        assert used.tolist() == [[1, 0], [2, 1]][earlier]
        assert record.used is not None
        record.used = torch.tensor([2, 1], dtype=torch.int32)  # as a snapshot has it


def test_a_store_keeps_what_its_rank_sets() -> None:
    store = dist.PrefixStore("some", own_store())
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert store.check(["key"])
    store.wait(["key"])
    assert (store.add("number", 2), store.add("number", 3)) == (2, 5)
    assert store.delete_key("key")
    assert not store.check(["key"])


def test_a_store_refuses_to_wait_for_other_ranks() -> None:
    store = dist.PrefixStore("other", own_store())
    with pytest.raises(HvdFtError, match="'other/key' is not in this rank's store"):
        store.get("key")
    with pytest.raises(HvdFtError, match="exchange values by collectives"):
        store.wait(["key"])


def test_gloo_does_not_wait_there() -> None:
    with pytest.raises(HvdFtError, match="give init_process_group an init_method"):
        dist.init_process_group("gloo", store=own_store(), rank=0, world_size=2)


def test_other_places_to_meet_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.PrefixStore("a", dist.PrefixStore("b", own_store()))
    rendezvous._check_meeting(store)
    assert is_own(store)
    with pytest.raises(HvdFtError, match="leave init_method= and store= out"):
        rendezvous._check_meeting(dist.PrefixStore("a", dist.HashStore()))
    monkeypatch.setenv("TORCH_DIST_INIT_BARRIER", "1")
    with pytest.raises(HvdFtError, match="TORCH_DIST_INIT_BARRIER=1 would wait"):
        rendezvous._check_meeting(store)
