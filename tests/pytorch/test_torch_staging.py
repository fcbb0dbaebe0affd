"""Tensors of a device go through the host's memory; here some of the CPU stand for a device's."""

from collections.abc import Iterator
from typing import Any

import horovod.torch as horovod
import pytest
import torch
import torch.distributed as dist
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import mpi_ops

from hvd_ft.torch import staging
from hvd_ft.torch.distributed import devices
from hvd_ft.torch.distributed.work import done


class Away(torch.Tensor):
    """Stands for a tensor of a device."""


def away(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers).as_subclass(Away)


class Library:
    """Stands for Horovod's: sums over two ranks, which give the same, and gathers. When waited for.

    Attributes:
        given: the tensors of all calls.
    """

    def __init__(self) -> None:
        self.given: list[torch.Tensor] = []
        self._ends: list[Any] = []

    def start(self, tensors: Any, results: Any, gathers: bool) -> int:
        pairs = list(zip(*map(staging._listed, (tensors, results)), strict=True))
        self.given += [each for pair in pairs for each in pair]

        def end() -> None:
            for tensor, result in pairs:
                if gathers:
                    result.resize_(2 * len(tensor)).copy_(torch.cat([tensor, tensor]))
                else:
                    result.copy_(2 * tensor)

        self._ends.append(end)
        return len(self._ends) - 1

    def fail(self, handle: int) -> None:
        def end() -> None:
            raise RuntimeError("it has failed")

        self._ends[handle] = end

    def horovod_torch_wait_and_clear(self, handle: int) -> None:
        self._ends[handle]()


@pytest.fixture(name="library")
def staged_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    library = Library()

    def _reduce(tensor: Any, output: Any, name: str) -> int:
        handle = library.start(tensor, output, gathers=False)
        mpi_ops._handle_map[handle] = (tensor, output)
        return handle

    def _grouped(tensors: Any, outputs: Any, name: str) -> int:
        handle = library.start(tensors, outputs, gathers=False)
        mpi_ops._handle_map[handle] = (tuple(tensors), tuple(outputs))
        return handle

    def _exchange(tensor: Any, splits: Any, output: Any, received: Any, name: str) -> int:
        handle = library.start(tensor, output, gathers=True)
        mpi_ops._handle_map[handle] = (tensor, splits, (output, received))
        return handle

    monkeypatch.setattr(staging, "is_away", lambda tensor: isinstance(tensor, Away))
    monkeypatch.setattr(devices, "is_away", lambda tensor: isinstance(tensor, Away))
    for module in (staging, devices):
        monkeypatch.setattr(
            module, "on_host", lambda tensor: tensor.as_subclass(torch.Tensor).clone()
        )
    operations = {"_reduce": _reduce, "_grouped": _grouped, "_exchange": _exchange}
    for name, operation in operations.items():
        monkeypatch.setattr(mpi_ops, name, operation, raising=False)
    monkeypatch.setattr(staging, "OPERATIONS", tuple(operations))
    monkeypatch.setattr(mpi_ops, "mpi_lib", library)
    monkeypatch.setattr(mpi_ops, "_handle_map", {})
    staging.stage_operations()
    yield library
    assert not any(isinstance(each, Away) for each in library.given)
    assert not staging._started and not mpi_ops._handle_map


def start(name: str, *arguments: Any) -> int:
    handle: int = getattr(mpi_ops, name)(*arguments, None)
    return handle


def test_a_result_is_there_when_it_is_waited_for(library: Library) -> None:
    tensor, output = away(1, 2), away(0, 0)
    handle = start("_reduce", tensor, output)
    assert output.tolist() == [0, 0]
    assert horovod.synchronize(handle) is output
    assert (tensor.tolist(), output.tolist()) == ([1, 2], [2, 4])


def test_what_is_reduced_in_place_is_copied_once(library: Library) -> None:
    first, second = away(1), away(2)
    handle = start("_grouped", [first, second], [first, second])
    assert len({id(each) for each in library.given}) == 2
    assert [id(each) for each in horovod.synchronize(handle)] == [id(first), id(second)]
    assert (first.tolist(), second.tolist()) == ([2], [4])


def test_a_result_has_the_shape_that_it_gets(library: Library) -> None:
    output, splits, received = away(), torch.ones(2), torch.zeros(2)
    handle = start("_exchange", away(1, 2), splits, output, received)
    found = horovod.synchronize(handle)
    assert [id(each) for each in found] == [id(output), id(received)]
    assert output.tolist() == [1, 2, 1, 2]


def test_tensors_of_the_cpu_are_given_as_they_are(library: Library) -> None:
    tensor = torch.ones(2)
    assert horovod.synchronize(start("_reduce", tensor, tensor)) is tensor
    assert library.given[0] is tensor


def test_a_wait_that_fails_leaves_nothing(library: Library) -> None:
    tensor = away(1)
    handle = start("_reduce", tensor, tensor)
    library.fail(handle)
    with pytest.raises(HorovodInternalError, match="it has failed"):
        horovod.synchronize(handle)
    assert tensor.tolist() == [1]


def test_a_collective_of_a_group_is_done_when_its_outputs_are_on_the_device(
    library: Library,
) -> None:
    held: Any = torch.futures.Future()

    def gather(group: Any, outputs: Any, inputs: Any, opts: Any = None) -> dist.Work:
        library.given += [*outputs[0], *inputs]
        work = devices.of_future(held.then(lambda _: None))
        for output in outputs[0]:
            output.copy_(inputs[0])
        return work

    outputs, tensor = [away(0, 0), away(0, 0)], away(1, 2)
    work = devices.takes_devices(gather)(None, [outputs], [tensor])
    assert not work.is_completed() and outputs[0].tolist() == [0, 0]
    held.set_result(None)
    assert [id(each) for each in work.get_future().wait()] == list(map(id, outputs))
    assert [each.tolist() for each in outputs] == [[1, 2], [1, 2]]


def test_an_error_of_a_collective_is_that_of_its_copies(library: Library) -> None:
    def fail(_: Any) -> None:
        raise ValueError("a result does not fit")

    def reduce(group: Any, tensors: Any) -> dist.Work:
        return devices.of_future(done([]).get_future().then(fail))

    tensor = away(1)
    with pytest.raises(RuntimeError, match="a result does not fit"):
        devices.takes_devices(reduce)(None, [tensor]).get_future().wait()
    assert tensor.tolist() == [1]
