"""What a snapshot keeps of a Trainer's objects, and the reasons why something is refused."""

from collections import Counter, deque
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.loops.fetchers import _DataFetcher
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.connectors.logger_connector.result import _ResultCollection
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch.utils.data import DataLoader, DistributedSampler

import hvd_ft.torch as hvd
from hvd_ft.errors import HvdFtError
from hvd_ft.torch.lightning import Snapshots, job, snapshots
from hvd_ft.torch.lightning.attributes import is_plain, plain_attributes
from hvd_ft.torch.lightning.environment import JobEnvironment
from hvd_ft.torch.lightning.fetched import FetchedData
from hvd_ft.torch.lightning.results import restore_results, results_state

# Lightning's own classes of warnings cannot be sent between pytest's processes.
pytestmark = pytest.mark.filterwarnings("ignore")


def reduce(value: Any, *_: Any, **__: Any) -> Any:
    return value


def trainer(**settings: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    return pl.Trainer(accelerator="cpu", devices=1, **quiet, **settings)


@pytest.mark.parametrize(
    "value",
    [None, 1, "a", 0.5, b"x", [1, {"a": (2,)}], {1, 2}, deque([1]), Counter("ab"), np.ones(2)],
    ids=str,
)
def test_plain_values_are_kept(value: Any) -> None:
    assert is_plain(value)
    assert is_plain([value, torch.ones(2)])


@pytest.mark.parametrize(
    "value",
    [torch.nn.Linear(1, 1), torch.nn.Parameter(torch.ones(1)), object(), np.array([object()])],
    ids=lambda value: type(value).__name__,
)
def test_parameters_and_objects_stay_what_they_are(value: Any) -> None:
    assert not is_plain(value)
    assert not is_plain({"a": [value]})


def test_attributes_that_are_left_out_are_not_kept() -> None:
    callback = Snapshots(3)
    callback.seen = [1]
    assert plain_attributes(callback, {"_settings"}) == {"seen": [1]}


@pytest.mark.parametrize("function", ["mean", "sum", "max", "min"])
def test_logged_values_go_on_where_they_were(function: str) -> None:
    def log(results: _ResultCollection, value: float) -> None:
        more: dict[str, Any] = {"sync_dist": True, "sync_dist_fn": reduce, "reduce_fx": function}
        results.log(
            "training_step", "loss", torch.tensor(value), batch_size=3, on_step=True, **more
        )

    whole, first, second = (_ResultCollection(training=True) for _ in range(3))
    for results in (whole, first):
        log(results, 1.0)
        log(results, 4.0)
    restore_results(second, results_state(first), None, reduce)
    for results in (whole, second):
        log(results, 0.5)
    assert second["training_step.loss"].meta == whole["training_step.loss"].meta
    assert second.metrics(on_step=False) == whole.metrics(on_step=False)


def test_a_group_of_its_own_is_refused() -> None:
    results = _ResultCollection(training=True)
    results.log("training_step", "loss", torch.tensor(1.0), sync_dist_group="some", batch_size=1)
    with pytest.raises(HvdFtError, match=r"sync_dist_group=\.\.\.\) cannot be kept"):
        results_state(results)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "snapshots of a Trainer with SingleDeviceStrategy are not supported"),
        ({"reload_dataloaders_every_n_epochs": 1}, "makes loaders that a restarted rank would not"),
        ({"val_check_interval": "00:00:01:00"}, "by time validates at other steps"),
    ],
)
def test_a_trainer_that_cannot_be_kept_is_refused(settings: dict[str, Any], reason: str) -> None:
    made = trainer(**settings)
    if settings:
        made.strategy.__class__ = DDPStrategy
    with pytest.raises(HvdFtError, match=reason):
        snapshots._check(made)


def test_an_elastic_sampler_is_refused() -> None:
    data = list(range(4))
    made = trainer()
    loader = DataLoader(data, sampler=hvd.ElasticSampler(data, shuffle=False))
    made.fit_loop._combined_loader = CombinedLoader(loader)
    with pytest.raises(HvdFtError, match="has an ElasticSampler"):
        snapshots._check_data(made)


@pytest.mark.parametrize("settings", [{"start_method": "spawn"}, {"start_method": "fork"}])
def test_processes_of_lightnings_own_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(HvdFtError, match="starts processes of its own"):
        job._start_nothing(DDPStrategy(**settings))


def test_another_backend_is_refused() -> None:
    with pytest.raises(HvdFtError, match=r"'gloo'.* does not survive the death of a rank"):
        job._backend(DDPStrategy(process_group_backend="gloo"))
    assert job._backend(DDPStrategy()) == "hvd_ft"


def test_another_number_of_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hvd, "size", lambda: 6)
    monkeypatch.setattr(hvd, "local_size", lambda: 4)
    environment = object.__new__(JobEnvironment)
    environment.validate_settings(4, 1)  # as many as this host has
    environment.validate_settings(3, 2)
    with pytest.raises(HvdFtError, match=r"is for 5 ranks, but the job has 6"):
        environment.validate_settings(5, 1)


def test_an_interval_out_of_range_is_refused() -> None:
    with pytest.raises(HvdFtError, match="snapshot_steps"):
        Snapshots(snapshot_steps=0)


def test_fetched_data_has_the_epoch_of_its_samplers() -> None:
    loaders = [
        DataLoader(range(8), 2, sampler=DistributedSampler(range(8), 2, 0)) for _ in range(2)
    ]
    data = FetchedData(CombinedLoader(loaders))
    assert data.sampler.epoch == 0
    data.sampler.epoch = 3
    assert [loader.sampler.epoch for loader in loaders] == [3, 3]


def test_fetched_data_keeps_the_last_batch_if_asked() -> None:
    fetcher, data = _DataFetcher(), FetchedData(CombinedLoader(DataLoader(range(4), 2)))
    fetcher.setup(data)
    batches = iter(data)
    next(batches)
    assert data.last is None
    data.keeps_last = True
    assert next(batches) is data.last
