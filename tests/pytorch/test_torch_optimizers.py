"""Every kind of optimizer, scheduler, scaler and average is restored bit for bit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_worker import FakeArena, FakeWorker, incarnation
from torch_script import (  # noqa: F401
    BATCH,
    X,
    Y,
    check_kills,
    loader,
    model,
    plain_step,
    stand_for_horovod,
    train,
)

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.state import State

optim = torch.optim
schedulers = torch.optim.lr_scheduler

OPTIMIZERS: dict[str, Callable[[list[Any]], torch.optim.Optimizer]] = {
    "adamw": lambda params: optim.AdamW(params, 0.05, amsgrad=True),
    "tensor lr": lambda params: optim.Adam(params, torch.tensor(0.05), foreach=False),
    "sgd": lambda params: optim.SGD(params, 0.05, momentum=0.9, nesterov=True),
    "rmsprop": lambda params: optim.RMSprop(params, 0.01, centered=True, momentum=0.5),
    "adagrad": lambda params: optim.Adagrad(params, 0.05),
    "asgd": lambda params: optim.ASGD(params, 0.05),
    "rprop": lambda params: optim.Rprop(params, 0.01),
    "nadam": lambda params: optim.NAdam(params, 0.01),
    "groups": lambda params: optim.Adam(
        [{"params": params[:1], "lr": 0.1}, {"params": params[1:]}]
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_goes_on_as_it_was(name: str) -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        optimizer = OPTIMIZERS[name](list(net.parameters()))
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3)
        return train(state, loader(), worker, kill_at)

    check_kills(script, kills=(5, 9))


@pytest.mark.shows
def test_lbfgs_goes_on_as_it_was() -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        optimizer = optim.LBFGS(net.parameters(), 0.3, max_iter=3, line_search_fn="strong_wolfe")
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3)

        def step(x: Any, y: Any) -> Any:
            def closure() -> Any:
                optimizer.zero_grad()
                loss = (net(x) - y).square().mean()
                loss.backward()
                return loss

            return optimizer.step(closure)

        return train(state, loader(), worker, kill_at, step)

    check_kills(script)


@pytest.mark.shows
def test_sparse_gradients_go_on_as_they_were() -> None:
    """SparseAdam, and the sparse gradients that are left after a step."""

    def script(worker: FakeWorker, kill_at: int | None) -> State:
        table, head = torch.nn.Embedding(9, 4, sparse=True), torch.nn.Linear(4, 1)
        both = {"sparse": optim.SparseAdam(table.parameters(), 0.1)}
        both["dense"] = optim.Adam(head.parameters(), 0.1)
        state = State(table=table, head=head, **both, losses=[], snapshot_steps=3)

        def step(x: Any, y: Any) -> Any:
            for each in both.values():
                each.zero_grad()
            loss = (head(table((x[:, 0] * 40).long() % 9)) - y).square().mean()
            loss.backward()
            assert table.weight.grad is not None and table.weight.grad.is_sparse
            for each in both.values():
                each.step()
            return loss

        return train(state, loader(), worker, kill_at, step)

    check_kills(script)


@pytest.mark.shows
def test_a_group_that_is_added_in_training_is_there_again() -> None:
    """Layers are thawed one after the other, each with a group of its own."""

    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        parts = [part for part in net if list(part.parameters())]
        for part in parts[:-1]:
            part.requires_grad_(False)
        optimizer = optim.Adam(parts[-1].parameters(), 0.05)
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3, thawed=1)
        plain = plain_step(state)

        def step(x: Any, y: Any) -> Any:
            if len(state.losses) in (4, 7):
                state.thawed += 1
                part = parts[-state.thawed].requires_grad_(True)
                optimizer.add_param_group({"params": part.parameters(), "lr": 0.01 * state.thawed})
            return plain(x, y)

        return train(state, loader(), worker, kill_at, step)

    expected = check_kills(script, kills=(5, 6, 9, 12))
    assert len(expected.optimizer.param_groups) == 3


@pytest.mark.shows
def test_a_state_that_is_removed_in_training_does_not_come_back() -> None:
    """A layer is frozen; the script has made states of all parameters before its loop."""

    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        optimizer = optim.Adam(net.parameters(), 0.05)
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3)
        plain = plain_step(state)
        plain(X[:BATCH], Y[:BATCH])

        def step(x: Any, y: Any) -> Any:
            if len(state.losses) == 4:
                for each in net[0].requires_grad_(False).parameters():
                    del optimizer.state[each]
                    each.grad = None
            return plain(x, y)

        return train(state, loader(), worker, kill_at, step)

    expected = check_kills(script, kills=(6, 9))
    assert len(expected.optimizer.state) == len(list(expected.model.parameters())) - 2


def test_the_state_of_a_parameter_that_is_in_no_group_is_left_out() -> None:
    """The script takes a parameter out before its loop, when it has a state."""

    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        optimizer = optim.Adam(net.parameters(), 0.05)
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3)
        plain_step(state)(X[:BATCH], Y[:BATCH])
        alone = optimizer.param_groups[0]["params"].pop()
        state = train(state, loader(), worker, kill_at)
        optimizer.state.pop(alone, None)
        return state

    check_kills(script, kills=(5,))


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda optimizer: schedulers.StepLR(optimizer, 3, 0.5),
    "multi step": lambda optimizer: schedulers.MultiStepLR(optimizer, [2, 2, 7], 0.5),
    "lambda": lambda optimizer: schedulers.LambdaLR(optimizer, lambda step: 0.9**step),
    "one cycle": lambda optimizer: schedulers.OneCycleLR(optimizer, 0.1, 20),
    "cyclic": lambda optimizer: schedulers.CyclicLR(optimizer, 0.01, 0.1, 3, cycle_momentum=False),
    "warm restarts": lambda optimizer: schedulers.CosineAnnealingWarmRestarts(optimizer, 4),
    "sequential": lambda optimizer: schedulers.SequentialLR(
        optimizer,
        [schedulers.LinearLR(optimizer, 0.1), schedulers.ExponentialLR(optimizer, 0.9)],
        [5],
    ),
    "chained": lambda optimizer: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(optimizer, 0.1), schedulers.ExponentialLR(optimizer, 0.9)]
    ),
    "swa": lambda optimizer: torch.optim.swa_utils.SWALR(optimizer, 0.02, 5),
}


@pytest.mark.filterwarnings("ignore:.*epoch parameter:UserWarning")
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("tensor_lr", [False, True], ids=["float", "tensor"])
def test_a_scheduler_goes_on_as_it_was(name: str, tensor_lr: bool) -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        rate: Any = torch.tensor(0.05) if tensor_lr else 0.05
        optimizer = optim.Adam(net.parameters(), rate, foreach=False)
        scheduler = SCHEDULERS[name](optimizer)
        values = {"model": net, "optimizer": optimizer, "scheduler": scheduler}
        state = State(**values, losses=[], snapshot_steps=3)
        plain = plain_step(state)

        def step(x: Any, y: Any) -> Any:
            loss = plain(x, y)
            scheduler.step()
            return loss

        return train(state, loader(), worker, kill_at, step)

    check_kills(script, kills=(5, 12))


@pytest.mark.shows
def test_a_plateau_is_seen_as_before() -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        optimizer = optim.Adam(net.parameters(), 0.05)
        scheduler = schedulers.ReduceLROnPlateau(optimizer, patience=1, cooldown=1)
        values = {"model": net, "optimizer": optimizer, "scheduler": scheduler}
        state = State(**values, losses=[], snapshot_steps=3)
        plain = plain_step(state)

        def step(x: Any, y: Any) -> Any:
            loss = plain(x, y)
            scheduler.step(loss.item())
            return loss

        return train(state, loader(), worker, kill_at, step)

    expected = check_kills(script)
    assert expected.optimizer.param_groups[0]["lr"] < 0.05, "there was a plateau"


@pytest.mark.shows
def test_a_gradient_scaler_goes_on_as_it_was() -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
        optimizer = optim.SGD(net.parameters(), 0.05)
        values = {"model": net, "optimizer": optimizer, "scaler": scaler}
        state = State(**values, losses=[], snapshot_steps=3)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = (net(x).float() - y).square().mean()
            scale = float("inf") if len(state.losses) == 6 else 1.0
            scaler.scale(loss * scale).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        return train(state, loader(), worker, kill_at, step)

    expected = check_kills(script)
    assert expected.scaler.get_scale() != 2.0**10


@pytest.mark.shows
def test_an_average_of_weights_goes_on_as_it_was() -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        averaged = torch.optim.swa_utils.AveragedModel(
            net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
        )
        optimizer = optim.Adam(net.parameters(), 0.05)
        values = {"model": net, "optimizer": optimizer, "average": averaged}
        state = State(**values, losses=[], snapshot_steps=3)
        plain = plain_step(state)

        def step(x: Any, y: Any) -> Any:
            loss = plain(x, y)
            averaged.update_parameters(net)
            return loss

        return train(state, loader(), worker, kill_at, step)

    check_kills(script)


@pytest.mark.shows
def test_states_keep_their_types() -> None:
    """torch's own load_state_dict would make the states of bfloat16 parameters bfloat16."""

    class Careful(optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {})

        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for each in group["params"]:
                    kept = self.state[each]
                    whole = kept.setdefault("whole", each.detach().float())
                    whole -= 0.01 * each.grad.float()
                    each.data.copy_(whole)
            self.state["all"]["steps"] = self.state["all"].get("steps", 0) + 1

    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = torch.nn.Linear(3, 1, dtype=torch.bfloat16)
        state = State(model=net, optimizer=Careful(net.parameters()), losses=[], snapshot_steps=3)

        def step(x: Any, y: Any) -> Any:
            state.optimizer.zero_grad()
            loss = (net(x.bfloat16()) - y).square().mean()
            loss.backward()
            state.optimizer.step()
            return loss

        return train(state, loader(), worker, kill_at, step)

    expected = check_kills(script)
    assert expected.optimizer.state["all"]["steps"] == 15


def test_parameters_of_no_module_are_kept() -> None:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        weight = torch.nn.Parameter(torch.ones(3, 1))
        state = State(optimizer=optim.Adam([weight], 0.05), losses=[], snapshot_steps=3)

        def step(x: Any, y: Any) -> Any:
            state.optimizer.zero_grad()
            loss = (x @ weight - y).square().mean()
            loss.backward()
            state.optimizer.step()
            return loss

        state = train(state, loader(), worker, kill_at, step)
        state.weight = weight
        state._names = (*state._names, "weight")
        return state

    check_kills(script)


def test_another_optimizer_is_named() -> None:
    def made(count: int, net: Any) -> Any:
        params = list(net.parameters())
        return optim.SGD([{"params": params[n::count]} for n in range(count)], 0.1)

    arena = FakeArena()
    net = torch.nn.Linear(2, 2)
    with incarnation(arena, 0):
        state = State(model=net, optimizer=made(1, net), snapshot_steps=1)
        state.sync()
        state.commit()
    with incarnation(arena, 1), pytest.raises(HvdFtError, match=r"optimizer\.group1 is not what"):
        State(model=net, optimizer=made(2, net), snapshot_steps=1).sync()
