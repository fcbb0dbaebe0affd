"""What hvd_ft itself decides for Lightning and Accelerate; it needs neither of them."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from client_stand_ins import imported

import hvd_ft.torch as hvd
from hvd_ft.errors import HvdFtError


def test_parameters_and_what_is_left_out_are_no_plain_attributes() -> None:
    attributes = imported("lightning.attributes")
    parameter = torch.nn.Parameter(torch.ones(1), requires_grad=False)
    kept = SimpleNamespace(losses=[torch.ones(1)], weights=[parameter], name="a", secret=1)
    assert attributes.plain_attributes(kept, {"secret"}) == {
        "losses": kept.losses,
        "name": "a",
    }


def test_the_last_batch_is_kept_only_if_asked() -> None:
    fetched = imported("lightning.fetched")
    loaders = SimpleNamespace(flattened=[], __iter__=None)
    data = fetched.FetchedData(loaders)
    drawn = fetched.Drawn(data, iter([1, 2, 3]))
    next(drawn)
    assert data.last is None
    data.keeps_last = True
    next(drawn)
    assert data.last == 2


def test_the_epoch_of_a_batch_samplers_sampler_is_found() -> None:
    fetched = imported("lightning.fetched")
    inner = SimpleNamespace(epoch=4)
    loader = SimpleNamespace(sampler=object(), batch_sampler=SimpleNamespace(sampler=inner))
    assert fetched.Samplers([SimpleNamespace(), loader]).epoch == 4
    assert fetched.Samplers([SimpleNamespace()]).epoch is None


def test_devices_are_those_of_the_host_or_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = imported("lightning.environment").JobEnvironment
    monkeypatch.setattr(hvd, "size", lambda: 6)
    monkeypatch.setattr(hvd, "local_size", lambda: 4)
    its = object.__new__(environment)
    its.validate_settings(4, 1)
    its.validate_settings(3, 2)
    for devices, nodes in ((4, 2), (5, 1)):
        with pytest.raises(HvdFtError, match="but the job has 6: leave devices="):
            its.validate_settings(devices, nodes)


def test_the_sender_of_a_broadcast_takes_what_the_others_got(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = imported("lightning.job")
    data, size = job.c10d._object_to_tensor("file-v1", torch.device("cpu"), None)
    answers = iter([size, data])  # from the log, as this process has died before
    monkeypatch.setattr(job.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(job.dist, "broadcast", lambda into, _: into.copy_(next(answers)))
    monkeypatch.setattr(job.dist, "group", SimpleNamespace(WORLD=None))
    assert job._broadcast(None, "file-v20") == "file-v1"


def test_means_of_whole_numbers_are_made_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    job = imported("lightning.job")
    monkeypatch.setattr(dist, "get_world_size", lambda group=None: 3)
    asked: list[Any] = []

    def reduce(_: Any, tensor: Any, group: Any = None, op: Any = None) -> Any:
        asked.append(op)
        return tensor * 3

    reduced = job._with_means(reduce)
    whole = reduced(None, torch.tensor(5))
    assert (whole.item(), whole.dtype) == (5, torch.int64)
    assert reduced(None, torch.tensor(0.5)).item() == 1.5
    assert reduced(None, torch.tensor(5), reduce_op="max").item() == 15
    assert asked == ["sum", "mean", "max"]


def test_a_fit_that_is_over_begins_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = imported("lightning.snapshots")
    state = SimpleNamespace(begin=lambda: True)
    monkeypatch.setattr(snapshots, "FitState", lambda *_: state)
    monkeypatch.setattr(snapshots, "_check_data", lambda _: None)
    monkeypatch.setattr(snapshots, "_set_up_validation", lambda _: None)
    epochs: list[int] = []
    for is_over in (True, False):
        state.begin = lambda is_over=is_over: is_over
        steps = snapshots._Steps(object(), object(), (None, 0.1))
        if is_over:
            with pytest.raises(StopIteration):
                steps._epoch(lambda: epochs.append(1))
        else:
            steps._epoch(lambda: epochs.append(1))
    assert epochs == [1]


def test_a_pass_that_has_drawn_nothing_leaves_the_samplers_epoch() -> None:
    fit_state = imported("lightning.fit_state")
    state = object.__new__(fit_state.FitState)
    state._fetcher = SimpleNamespace(prefetch_batches=0, batches=[])
    state._prefetches = 2
    sampler = SimpleNamespace(epoch=1)
    state._source = SimpleNamespace(sampler=sampler, keeps_last=False, last=None)
    state.fetched = {"fetched": 3, "done": False, "epoch": None}
    state._resume_fetching()
    assert (state._fetcher.fetched, state._fetcher.done, sampler.epoch) == (3, False, 1)
    assert (state._fetcher.batches, state._fetcher.prefetch_batches) == ([], 0)
    state._source.keeps_last, state._source.last = True, "a batch"
    state.fetched["epoch"] = 5
    state._resume_fetching()
    assert sampler.epoch == 5
    assert (state._fetcher.batches, state._fetcher.prefetch_batches) == (["a batch"], 2)


def test_a_callbacks_state_is_kept_unless_its_attributes_have_it() -> None:
    progress = imported("lightning.progress")

    class Counts:
        def __init__(self, given: dict[str, Any]) -> None:
            self.count = 3
            self._given = given if "hidden" in given else None

        def state_dict(self) -> dict[str, Any]:
            return {"count": 3} if self._given is None else self._given

    assert progress._callback_state(Counts({}))["given"] == {}
    assert progress._callback_state(Counts({"hidden": 1}))["given"] == {"hidden": 1}


def accelerator() -> Any:
    gradients = SimpleNamespace(sync_gradients=True)
    gradients._set_sync_gradients = lambda value: gradients.__dict__.update(sync_gradients=value)
    optimizer = SimpleNamespace(step_was_skipped=True, _is_overflow=False)
    return SimpleNamespace(
        step=4,
        gradient_state=gradients,
        _optimizers=[optimizer],
        scaler=torch.amp.GradScaler("cpu"),
    )


def test_an_accelerators_counts_are_restored() -> None:
    module = imported("accelerate.state")
    before, after = accelerator(), accelerator()
    before.gradient_state.sync_gradients = False
    before.scaler.load_state_dict({**before.scaler.state_dict(), "scale": 8.0})
    kept = module._Progress(before)
    kept.iteration = 2
    after.step = 0
    restored = module._Progress(after)
    restored.load_state_dict(kept.state_dict())
    assert (after.step, restored.iteration, after.gradient_state.sync_gradients) == (4, 2, False)
    assert after._optimizers[0]._is_overflow
    assert after.scaler.get_scale() == 8.0


def test_a_loader_that_resumes_counts_from_its_earliest_repeated_pass() -> None:
    module = imported("accelerate.state")
    state = object.__new__(module.State)
    state._rng_types, state._resumed = None, True
    state._rest = {"rng": {"data": {"passes": [1, 2, 3]}}}
    state._progress = SimpleNamespace(iteration=5)
    loader = SimpleNamespace(rng_types=["torch"], iteration=0)
    state._prepare_pass(loader)
    assert (loader.iteration, loader.rng_types, state._rng_types) == (3, None, ["torch"])


def test_a_seedable_samplers_generator_is_there_before_its_pass() -> None:
    module = imported("accelerate.state")
    sampler = module.SeedableRandomSampler()
    sampler.generator = None
    module.get_sampler = lambda _: sampler
    module._make_generator(object())
    made = sampler.generator
    assert isinstance(made, torch.Generator)
    module._make_generator(object())
    assert sampler.generator is made


def test_accelerate_gets_the_jobs_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    job = imported("accelerate.job")
    job.DistributedType.MULTI_CPU = "CPUs"
    monkeypatch.setattr(job, "begin", lambda: None)
    numbers = {"rank": 5, "size": 8, "local_rank": 1, "local_size": 4}
    for name, number in numbers.items():
        monkeypatch.setattr(hvd, name, lambda number=number: number)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    for name in names:
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("MASTER_ADDR", "")
    monkeypatch.delenv("MASTER_ADDR")
    assert job._backend(None, cpu=True) == ("hvd_ft", "CPUs")
    assert os.environ["MASTER_ADDR"], "Accelerate refuses several hosts without it"
    assert [os.environ[name] for name in names] == ["5", "8", "1", "4"]
    with pytest.raises(HvdFtError, match="does not survive the death of a rank"):
        job._backend(None, backend="gloo")
