"""What a snapshot keeps of DistributedDataParallel's wrappers."""

from typing import Any

import pytest
import torch

from hvd_ft.torch import wrapped


class Module:
    """Stands for a wrapper."""

    require_forward_param_sync = False
    require_backward_grad_sync = True


@pytest.fixture(autouse=True)
def no_wrappers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrapped, "_wrappers", [])


def test_the_flags_of_ddp_are_kept() -> None:
    first, second = Module(), Module()
    for module in (first, second):
        wrapped.add(module, [])
    kept = wrapped.states()
    first.require_forward_param_sync = True
    second.require_backward_grad_sync = False
    wrapped.restore(kept)
    assert [each["flags"] for each in wrapped.states()] == [[False, True], [False, True]]


def test_gradients_in_buckets_are_there_again() -> None:
    def begin() -> tuple[Any, list[torch.nn.Parameter], torch.Tensor]:
        module, bucket = Module(), torch.zeros(6)
        parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
        wrapped.add(module, list(zip(parameters, bucket.split(2), strict=True)))
        return module, parameters, bucket

    _module, parameters, bucket = begin()
    parameters[0].grad = bucket[0:2].fill_(4)
    parameters[1].grad = torch.full((2,), 5.0)
    kept = wrapped.states()
    wrapped._wrappers.clear()
    _other, parameters, bucket = begin()
    for parameter, value in zip(parameters, (4.0, 5.0), strict=False):  # as State does before
        parameter.grad = torch.full((2,), value)
    wrapped.restore(kept)
    assert bucket.tolist() == [4, 4, 0, 0, 0, 0]
    gradients = [each.grad for each in parameters]
    assert gradients[0] is not None and gradients[0].data_ptr() == bucket.data_ptr()
    assert gradients[1] is not None and gradients[1].tolist() == [5, 5] and gradients[2] is None
    assert wrapped.states() == kept


def test_the_map_of_used_parameters_is_kept() -> None:
    module = Module()
    record = wrapped.add(module, [])
    assert wrapped.states()[0]["used"] is None
    record.used = torch.tensor([2, 0, 1], dtype=torch.int32)
    kept = wrapped.states()
    record.used = None
    wrapped.restore(kept)
    assert record.used is not None and record.used.tolist() == [2, 0, 1]
    assert record.used.dtype is torch.int32
