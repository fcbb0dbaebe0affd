"""What a module keeps beside its parameters, generators that a script gives, and names of ops."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from fake_worker import FakeArena, FakeWorker, incarnation
from horovod.torch import mpi_ops
from torch_script import (  # noqa: F401
    assert_same,
    begin_process,
    check_kills,
    everything,
    loader,
    model,
    plain_step,
    stand_for_horovod,
    train,
)

from hvd_ft.torch import op_names
from hvd_ft.torch.state import State


class Odd(torch.nn.Module):
    """Has a buffer that grows, one that a state_dict lacks, and state that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 1)
        self.register_buffer("seen", torch.zeros(0))
        self.register_buffer("hidden", torch.zeros(2), persistent=False)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen = torch.cat([self.seen, x.detach()[0]])
        self.hidden += self.calls
        return self.inner(x) + self.hidden.sum() / 100

    def get_extra_state(self) -> Any:
        return {"calls": self.calls}

    def set_extra_state(self, state: Any) -> None:
        self.calls = state["calls"]


@pytest.mark.shows
def test_an_odd_module_goes_on_as_it_was() -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = Odd()
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3)
        return train(state, loader(), worker, kill_at)

    assert check_kills(script).model.calls == 15


@pytest.mark.shows
def test_parts_that_are_frozen_stay_so() -> None:
    """After the third step batch statistics stand still, and one layer is not trained any more."""

    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), 0.05)
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3)
        plain = plain_step(state)

        def step(x: Any, y: Any) -> Any:
            if len(state.losses) == 2:
                net[1].eval()
                net[0].requires_grad_(False)
            return plain(x, y)

        return train(state, loader(), worker, kill_at, step)

    expected = check_kills(script, kills=(5, 9))
    assert int(expected.model[1].num_batches_tracked) == 2


@pytest.mark.shows
def test_gradients_that_are_summed_over_steps_are_kept() -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), 0.05)
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3)

        def step(x: Any, y: Any) -> Any:
            loss = (net(x) - y).square().mean()
            loss.backward()
            if len(state.losses) % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            return loss

        return train(state, loader(), worker, kill_at, step)

    check_kills(script)


def test_weights_keep_their_layout() -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = torch.nn.Conv2d(3, 2, 2).to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(net.parameters(), 0.05)
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = net(x[:, :, None, None].expand(-1, -1, 3, 3)).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return train(state, loader(), worker, kill_at, step)

    expected = check_kills(script, kills=(5,))
    (kept, *_) = expected.optimizer.state.values()
    assert not kept["exp_avg"].is_contiguous()


@pytest.mark.shows
def test_generators_that_are_given_go_on() -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        generators = {
            "of_torch": torch.Generator().manual_seed(1),
            "of_numpy": np.random.default_rng(2),
            "of_old_numpy": np.random.RandomState(3),
            "of_python": random.Random(4),
        }
        state = State(**generators, losses=[], snapshot_steps=3)

        def step(x: Any, y: Any) -> Any:
            drawn = torch.rand((), generator=state.of_torch) + state.of_numpy.normal()
            return drawn + state.of_old_numpy.randn() + state.of_python.gauss()

        return train(state, loader(), worker, kill_at, step)

    check_kills(script)


@pytest.mark.shows
def test_collectives_without_a_name_are_named_by_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restarted process continues with the numbers of its snapshot, for each process set."""
    names: list[str] = []

    def enqueue(tensor: Any, output: Any, root: int, name: str, process_set: Any) -> int:
        names.append(name)
        return 0

    broadcast = op_names._named(enqueue)
    everyone, few = mpi_ops.global_process_set, mpi_ops.ProcessSet([0])
    few.process_set_id = 3

    def steps(count: int) -> None:
        for _ in range(count):
            broadcast(None, None, 0, None, everyone)
            broadcast(None, None, 0, "mine", everyone)
            broadcast(None, None, 0, None, few)
            state.commit()

    arena = FakeArena()
    with incarnation(arena, 0):
        begin_process()
        state = State(snapshot_steps=2)
        state.sync()
        steps(3)
    with incarnation(arena, 1):
        begin_process()
        state = State(snapshot_steps=2)
        state.sync()
        steps(1)
    once = ["noname.0.{0}", "mine", "noname.3.{0}"]
    assert names == [name.format(number) for number in (0, 1, 2, 2) for name in once]


def test_all_of_horovods_operations_are_named() -> None:
    for name in op_names.OPERATIONS:
        assert getattr(mpi_ops, name).__wrapped__.__name__ == name
