"""What the tests of `State` for PyTorch train, and how they compare what has come of it."""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

from hvd_ft.torch import op_names
from hvd_ft.torch import state as state_module
from hvd_ft.torch.state import State

SAMPLES, BATCH, EPOCHS = 20, 4, 3
STEPS = EPOCHS * SAMPLES // BATCH
X = (torch.arange(SAMPLES * 3, dtype=torch.float32).reshape(SAMPLES, 3) / 50).contiguous()
Y = torch.sin(X.sum(1, keepdim=True))
DATA = torch.utils.data.TensorDataset(X, Y)

Script = Callable[[FakeWorker, int | None], State]


@pytest.fixture(autouse=True, name="alone")
def stand_for_horovod(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Alone, a broadcast gives back what was given; as an op of the log it is noted."""

    def broadcast(arrays: dict[str, np.ndarray], values: Mapping[str, Any]) -> Any:
        worker = state_module.native.worker()
        if worker is not None:
            worker.collective("broadcast")
        return arrays, values

    monkeypatch.setattr(state_module, "_broadcast", broadcast)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    op_names.restore_counts([])


def begin_process() -> None:
    """Sets what a new process begins with."""
    torch.manual_seed(5)
    np.random.seed(6)
    random.seed(7)
    op_names.restore_counts([])


def model(*layers: torch.nn.Module) -> torch.nn.Module:
    inner = layers or (torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.2))
    return torch.nn.Sequential(*inner, torch.nn.Linear(4, 1))


def loader(**options: Any) -> Any:
    return torch.utils.data.DataLoader(DATA, **{"batch_size": BATCH, "shuffle": True, **options})


def draw_of_all() -> float:
    """A number that depends on each global generator."""
    of_numpy = float(np.random.rand()) + float(np.random.randn())
    return float(torch.rand(())) + of_numpy + random.random()


def train(
    state: State,
    data: Any,
    worker: FakeWorker,
    kill_at: int | None,
    step: Callable[[Any, Any], Any] | None = None,
) -> State:
    """A training loop of several epochs; dies in the given step, after it has changed everything.

    Args:
        state: what it trains; has `losses`.
        data: what to draw from.
        worker: for its collectives.
        kill_at: number of the step, from 1.
        step: trains on a batch and returns the loss; by default `plain_step`.
    """
    state.sync()
    while state.epoch < EPOCHS:
        for x, y in state.batches(data):
            loss = (step or plain_step(state))(x, y)
            noise = draw_of_all()
            worker.collective(f"step {loss.item()!r} {noise!r} {x.flatten().tolist()}")
            state.losses.append(loss.item())
            if len(state.losses) == kill_at:
                raise Killed
        worker.collective(f"epoch {state.epoch} {draw_of_all()!r}")
    return state


def plain_step(state: State) -> Callable[[Any, Any], Any]:
    def step(x: Any, y: Any) -> Any:
        state.optimizer.zero_grad()
        loss = ((state.model(x) - y) ** 2).mean()
        loss.backward()
        state.optimizer.step()
        return loss

    return step


def check_kills(script: Script, kills: tuple[int, ...] = (2, 5, 6, 9)) -> State:
    """Runs a script undisturbed, killed at each of several steps, and at all of them in turn.

    All runs must end with the same state.
    """
    with incarnation(FakeArena(), 0) as worker:
        begin_process()
        expected = script(worker, None)
    wanted = everything(expected)
    for stops in dict.fromkeys([*((kill_at,) for kill_at in kills), kills]):
        arena = FakeArena()
        for number, kill_at in enumerate(stops):
            with incarnation(arena, number) as worker, pytest.raises(Killed):
                begin_process()
                script(worker, kill_at)
        with incarnation(arena, len(stops)) as worker:
            begin_process()
            state = script(worker, None)
        assert_same(everything(state), wanted)
        assert bool(worker.jumps) == (stops[-1] > 3), "snapshots are taken every 3 steps"
    return expected


def everything(state: State) -> dict[str, Any]:
    """All that training has made of a State's values, as torch itself finds it."""
    found: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(legacy=True),
        "python": random.getstate(),
    }
    for name in state._names:
        value = getattr(state, name)
        if isinstance(value, torch.nn.Module):
            parameters = dict(value.named_parameters())
            found[f"{name} gradients"] = {key: each.grad for key, each in parameters.items()}
            found[f"{name} trained"] = [each.requires_grad for each in parameters.values()]
            found[f"{name} buffers"] = dict(value.named_buffers())
        if isinstance(value, torch.Generator):
            found[name] = value.get_state()
        elif isinstance(value, np.random.Generator):
            found[name] = value.bit_generator.state
        elif isinstance(value, np.random.RandomState):
            found[name] = value.get_state(legacy=True)
        elif isinstance(value, random.Random):
            found[name] = value.getstate()
        elif hasattr(value, "state_dict"):
            found[name] = value.state_dict()
        else:
            found[name] = value
    return found


def assert_same(one: Any, other: Any, path: str = "") -> None:
    """Compares nested values bit for bit."""
    assert type(one) is type(other), f"{path}: {type(one)} {type(other)}"
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.layout) == (other.dtype, other.shape, other.layout), path
        if one.is_sparse:
            one, other = one.coalesce().to_dense(), other.coalesce().to_dense()
        same = one.contiguous().view(-1), other.contiguous().view(-1)
        assert torch.equal(*(each.view(torch.uint8) for each in same)), path
        assert one.stride() == other.stride(), path
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes(), path
    elif isinstance(one, Mapping):
        assert list(one) == list(other), path
        for key in one:
            assert_same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{path}.{number}")
    else:
        assert one == other, path
