"""A loop of the user's own that is killed and resumed ends as if nothing had happened."""

from typing import Any

import pytest
import torch
from fake_worker import FakeArena, FakeWorker, Killed, incarnation
from safetensors.numpy import save
from safetensors.torch import load
from torch_script import (  # noqa: F401
    EPOCHS,
    STEPS,
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

from hvd_ft.checkpoint.export import by_name, of_value, with_types
from hvd_ft.errors import HvdFtError
from hvd_ft.torch import wrapped
from hvd_ft.torch.kept import KeptValues
from hvd_ft.torch.state import State
from hvd_ft.torch.tensors import Arrays


def make_state(**values: Any) -> State:
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    return State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3, **values)


def with_batches(worker: FakeWorker, kill_at: int | None) -> State:
    return train(make_state(), loader(), worker, kill_at)


def finished(worker: FakeWorker, kill_at: int | None) -> State:
    """Two loops, each with a collective after it."""
    state = with_batches(worker, kill_at)
    state.finish()
    worker.collective("between")
    again = make_state(first=len(state.losses))
    return train(again, loader(), worker, None if kill_at is None else kill_at - STEPS)


@pytest.mark.shows
def test_a_killed_loop_ends_as_an_undisturbed_one() -> None:
    expected = check_kills(with_batches, kills=(2, 5, 6, 9, STEPS))
    assert len(expected.losses) == STEPS
    assert len(set(expected.losses)) == STEPS


def test_a_finished_loop_is_passed_without_a_step() -> None:
    with incarnation(FakeArena(), 0) as worker:
        begin_process()
        wanted = everything(finished(worker, None))
    arena = FakeArena()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        begin_process()
        finished(worker, STEPS + 4)
    with incarnation(arena, 1) as worker:
        begin_process()
        state = finished(worker, None)
    assert worker.jumps == [0, 1]
    assert_same(everything(state), wanted)


def test_a_loop_killed_twice_ends_as_an_undisturbed_one() -> None:
    with incarnation(FakeArena(), 0) as worker:
        begin_process()
        wanted = everything(with_batches(worker, None))
    arena = FakeArena()
    for number, kill_at in enumerate((8, 13)):
        with incarnation(arena, number) as worker, pytest.raises(Killed):
            begin_process()
            with_batches(worker, kill_at)
    with incarnation(arena, 2) as worker:
        begin_process()
        assert_same(everything(with_batches(worker, None)), wanted)


def test_a_loop_without_batches_is_kept_too() -> None:
    def by_hand(worker: FakeWorker, kill_at: int | None) -> State:
        state = make_state(best=float("inf"))
        state.sync()
        while state.batch < 10:
            x = torch.rand(4, 3)
            state.optimizer.zero_grad()
            loss = state.model(x).square().mean()
            loss.backward()
            state.optimizer.step()
            worker.collective(f"step {float(loss)!r}")
            state.losses.append(float(loss))
            state.best = min(state.best, float(loss))
            if len(state.losses) == kill_at:
                raise Killed
            state.batch += 1
            state.commit()
        return state

    check_kills(by_hand)


@pytest.mark.shows
def test_a_snapshot_is_not_changed_by_the_steps_after_it() -> None:
    state = make_state()
    arena = FakeArena()
    with incarnation(arena, 0):
        state.sync()
        arrays, values = state._contents()
        before = {name: array.copy() for name, array in arrays.items()}
        for parameter in state.model.parameters():
            parameter.data.add_(1.0)
        state.losses.append(1.0)
        for name, array in arrays.items():
            assert (array == before[name]).all(), name
        assert values["values"]["losses"]["items"] == []


def test_values_may_be_anything_that_is_data() -> None:
    values = {
        "tensor": torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
        "nested": {"a": (1, torch.ones(2)), 3: [None, True, {"x"}], torch.float16: b"bytes"},
        "sparse": torch.eye(3).to_sparse(),
        "size": torch.Size([2, 3]),
        "complex": 1 + 2j,
    }
    arena = FakeArena()
    with incarnation(arena, 0):
        state = State(snapshot_steps=1, **values)
        state.sync()
        state.tensor += 1
        state.complex *= 2
        state.commit()
        wanted = everything(state)
    with incarnation(arena, 1):
        tensor = values["tensor"] = torch.zeros(2, dtype=torch.bfloat16)
        state = State(snapshot_steps=1, **values)
        state.sync()
    assert_same(everything(state), wanted)
    assert state.tensor is tensor, "it is set in place, as the script may hold it elsewhere"


@pytest.mark.shows
def test_misuse_is_named() -> None:
    with pytest.raises(HvdFtError, match="reserves the name commit"):
        State(commit=1)
    with pytest.raises(HvdFtError, match="snapshot_steps"):
        State(snapshot_steps=0)
    with pytest.raises(HvdFtError, match=r"^file cannot be kept.* a object;"):
        State(file=object()).sync()
    with pytest.raises(HvdFtError, match=r"^lazy\.weight has no shape yet"):
        State(lazy=torch.nn.LazyLinear(2)).sync()
    meta = torch.nn.Linear(2, 2, device="meta")
    with pytest.raises(HvdFtError, match=r"^model\.weight cannot be kept.* meta"):
        State(model=meta).sync()


def test_another_model_is_named() -> None:
    arena = FakeArena()
    with incarnation(arena, 0):
        state = State(model=torch.nn.Linear(3, 4), snapshot_steps=1)
        state.sync()
        state.commit()
    for net, reason in (
        (torch.nn.Linear(3, 5), r"model\.weight is \[4, 3\] of float32 .* made it \[5, 3\]"),
        (torch.nn.Linear(3, 4, bias=False), r"model\.bias is \[4\] .* has not made it"),
        (torch.nn.Bilinear(3, 4, 4), r"model\.weight is"),
    ):
        with incarnation(arena, 1), pytest.raises(HvdFtError, match=reason):
            State(model=net, snapshot_steps=1).sync()


def test_no_snapshot_is_taken_while_a_collective_has_a_handle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from horovod.torch import mpi_ops

    arena = FakeArena()
    with incarnation(arena, 0) as worker:
        state = State(snapshot_steps=1)
        state.sync()
        monkeypatch.setattr(mpi_ops, "_handle_map", {3: None})
        state.commit()
        assert worker.snapshots == 0
        assert "1 collectives are not synchronised" in capsys.readouterr().err
        monkeypatch.setattr(mpi_ops, "_handle_map", {})
        state.commit()
        assert worker.snapshots == 1


@pytest.mark.shows
def test_what_a_script_does_before_each_pass_is_not_done_twice() -> None:
    """A sum is set to 0, and a scheduler stepped, where a pass begins."""

    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        values = {"model": net, "optimizer": optimizer, "scheduler": scheduler}
        state = State(**values, total=0, totals=[], snapshot_steps=3)
        data = loader()
        state.sync()
        while state.epoch < EPOCHS:
            state.total = 0
            optimizer.step()
            scheduler.step()
            for x, y in state.batches(data):
                loss = plain_step(state)(x, y)
                worker.collective(f"step {loss.item()!r}")
                state.total += 1
                if 5 * state.epoch + state.total == kill_at:
                    raise Killed
            state.totals.append(state.total)
        return state

    expected = check_kills(script, kills=(5, 7, 12, STEPS))
    assert expected.totals == [5, 5, 5]
    assert expected.optimizer.param_groups[0]["lr"] == 0.05 / 8


@pytest.mark.shows
def test_exported_tensors_are_a_state_dict() -> None:
    """With bfloat16 as such, and without buffers that a state_dict lacks."""
    net = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)).bfloat16()
    net.register_buffer("hidden", torch.ones(2), persistent=False)
    arrays = Arrays()
    KeptValues({"model": net, "other": torch.ones(2)}).pack(arrays)
    found = of_value(arrays.arrays, "model")
    types = by_name({key: key.partition("|")[2] for key in found})
    read = load(with_types(save(by_name(found)), types))
    assert_same(dict(sorted(read.items())), dict(sorted(net.state_dict().items())))
    net.load_state_dict(read)


def begin_and_leave(arena: FakeArena, state: State, batches: int) -> None:
    """Trains for some batches in the arena's first process, which is killed then."""
    with incarnation(arena, 0):
        state.sync()
        for number, _ in enumerate(state.batches(loader()), 1):
            if number > batches:
                return


def test_what_reset_callbacks_change_stays() -> None:
    """Values are restored a second time where the loop is entered, but not in a resized job."""
    arena = FakeArena()
    begin_and_leave(arena, make_state(scale=1.0), 3)
    with incarnation(arena, 1):
        state = make_state(scale=2.0)
        state.register_reset_callbacks([lambda: setattr(state, "scale", 7.0)])
        state.sync()
        assert state.scale == 1.0
        state._reset()  # as in a job with another number of ranks
        next(state.batches(loader()))
        assert state.scale == 7.0


def test_what_ddp_remembers_is_restored_where_the_loop_is_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A script may call the module before, for example to validate."""

    class Module:
        require_forward_param_sync = require_backward_grad_sync = True

    def begin() -> Module:
        monkeypatch.setattr(wrapped, "_wrappers", [])
        module = Module()
        wrapped.add(module, [])
        return module

    arena, module = FakeArena(), begin()
    module.require_forward_param_sync = False
    begin_and_leave(arena, make_state(), 3)
    with incarnation(arena, 1):
        again = begin()
        state = make_state()
        state.sync()
        next(state.batches(loader()))
        assert not again.require_forward_param_sync and again.require_backward_grad_sync
