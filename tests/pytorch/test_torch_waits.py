"""Waits for results are reported to the core, whatever function of Horovod waits."""

from collections.abc import Iterator
from typing import Any

import horovod.torch as horovod
import pytest
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import mpi_ops

from hvd_ft.torch import waits


class Worker:
    def __init__(self) -> None:
        self.told: list[str] = []

    def script_waits(self) -> None:
        self.told.append("waits")

    def script_goes_on(self) -> None:
        self.told.append("goes on")


class Library:
    """Stands for Horovod's: each handle is done at once, but 2 fails."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def horovod_torch_wait_and_clear(self, handle: int) -> None:
        self._told.append(f"handle {handle}")
        if handle == 2:
            raise RuntimeError("it has failed")


@pytest.fixture(name="worker")
def reporting_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    worker = Worker()
    monkeypatch.setattr(mpi_ops, "mpi_lib", Library(worker.told))
    monkeypatch.setattr(mpi_ops, "_handle_map", {1: ("result",), 2: ("none",)})
    monkeypatch.setattr(waits, "_reports", True)
    yield worker


def test_a_wait_begins_and_ends(worker: Any) -> None:
    for _ in range(2):  # as by two calls of hvd.init
        waits.report_waits(worker)
    assert horovod.synchronize(1) == "result"
    assert worker.told == ["waits", "handle 1", "goes on"]


def test_a_wait_that_fails_ends_too(worker: Any) -> None:
    waits.report_waits(worker)
    with pytest.raises(HorovodInternalError, match="it has failed"):
        horovod.synchronize(2)
    assert worker.told == ["waits", "handle 2", "goes on"]


def test_beside_torch_distributed_nothing_is_reported(worker: Any) -> None:
    waits.report_none()
    waits.report_waits(worker)
    assert horovod.synchronize(1) == "result"
    assert worker.told == ["handle 1"]
