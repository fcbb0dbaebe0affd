"""A killed loop continues with the very batch, whatever it draws from, and however this draws."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from fake_worker import FakeArena, FakeWorker, Killed, incarnation
from torch.utils import data as torch_data
from torch_script import (  # noqa: F401
    BATCH,
    DATA,
    EPOCHS,
    SAMPLES,
    X,
    begin_process,
    check_kills,
    loader,
    model,
    stand_for_horovod,
    train,
)

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.data import DataPosition
from hvd_ft.torch.sampler import ElasticSampler
from hvd_ft.torch.state import State

KILLS = (2, 5, 7, 12)


class Noisy(torch_data.Dataset):
    """Draws from all generators for each sample, for some of them more often."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(index % 3 + 1).sum() + float(np.random.rand()) + random.random()
        return X[index] + noise, noise.reshape(1)


class OwnNoise(Noisy):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        self.parts = {"noise": [np.random.default_rng(3)]}

    def __getitem__(self, index: int) -> Any:
        return X[index] + float(self.parts["noise"][0].random()), torch.ones(1)


class Shuffled(torch_data.IterableDataset):
    """Shuffles in a small buffer, by a global generator that the loop draws from too."""

    def __iter__(self) -> Iterator[Any]:
        info = torch_data.get_worker_info()
        part, parts = (info.id, info.num_workers) if info else (0, 1)
        waiting: list[int] = []
        for index in [*range(part, SAMPLES, parts), *[-1] * 5]:
            waiting.append(index)
            if len(waiting) > 5:
                taken = waiting.pop(int(torch.randint(len(waiting), ())))
                if taken >= 0:
                    yield X[taken] + random.random(), torch.ones(1)


class Lazy(torch_data.Sampler[int]):
    """Draws a step to the next index when it is asked for it, from a global generator."""

    def __iter__(self) -> Iterator[int]:
        index = 0
        for _ in range(SAMPLES):
            index = (index + random.randrange(SAMPLES)) % SAMPLES
            yield index

    def __len__(self) -> int:
        return SAMPLES


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def distributed() -> Any:
    return torch_data.DistributedSampler(DATA, num_replicas=2, rank=1, seed=4)


LOADERS: dict[str, Callable[[], Any]] = {
    "plain": lambda: loader(shuffle=False),
    "shuffled": loader,
    "by a generator": lambda: loader(generator=seeded()),
    "remainder": lambda: loader(batch_size=3),
    "without remainder": lambda: loader(batch_size=3, drop_last=True),
    "with replacement": lambda: loader(
        shuffle=False, sampler=torch_data.RandomSampler(DATA, replacement=True, generator=seeded())
    ),
    "weighted": lambda: loader(
        shuffle=False, sampler=torch_data.WeightedRandomSampler(range(1, SAMPLES + 1), 2 * SAMPLES)
    ),
    "lazy": lambda: torch_data.DataLoader(Noisy(), BATCH, sampler=Lazy()),
    "batch sampler": lambda: torch_data.DataLoader(
        DATA, batch_sampler=torch_data.BatchSampler(torch_data.RandomSampler(DATA), 4, False)
    ),
    "noise": lambda: torch_data.DataLoader(Noisy(), BATCH, shuffle=True),
    "noise of its own": lambda: torch_data.DataLoader(OwnNoise(), BATCH, shuffle=True),
    "iterable": lambda: torch_data.DataLoader(Shuffled(), BATCH),
    "list": lambda: [(X[n : n + 4], torch.ones(4, 1)) for n in range(0, SAMPLES, 4)],
}
SLOW_LOADERS: dict[str, Callable[[], Any]] = {
    "workers": lambda: torch_data.DataLoader(Noisy(), BATCH, shuffle=True, num_workers=2),
    "workers of an iterable": lambda: torch_data.DataLoader(
        Shuffled(), 3, num_workers=2, drop_last=True
    ),
    "lasting workers": lambda: torch_data.DataLoader(
        Noisy(), BATCH, shuffle=True, num_workers=2, persistent_workers=True, generator=seeded()
    ),
}


def script_of(make: Callable[[], Any]) -> Callable[[FakeWorker, int | None], State]:
    def script(worker: FakeWorker, kill_at: int | None) -> State:
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), 0.05)
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3)
        return train(state, make(), worker, kill_at)

    return script


@pytest.mark.shows
@pytest.mark.parametrize("name", LOADERS)
def test_a_killed_loop_draws_what_is_left(name: str) -> None:
    check_kills(script_of(LOADERS[name]), kills=KILLS)


@pytest.mark.job
@pytest.mark.shows
@pytest.mark.parametrize("name", SLOW_LOADERS)
def test_a_killed_loop_draws_what_is_left_from_workers(name: str) -> None:
    check_kills(script_of(SLOW_LOADERS[name]), kills=(5, 12))


@pytest.mark.shows
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.job)])
def test_the_epoch_of_a_distributed_sampler_is_that_of_the_pass(workers: int) -> None:
    """With lasting workers the passes before are repeated, each with its own epoch."""

    def script(worker: FakeWorker, kill_at: int | None) -> State:
        sampler = distributed()
        more = {"num_workers": workers, "persistent_workers": workers > 0}
        data = torch_data.DataLoader(Noisy(), 2, sampler=sampler, **more)
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), 0.05)
        state = State(model=net, optimizer=optimizer, losses=[], snapshot_steps=3)
        state.sync()
        while state.epoch < EPOCHS:
            sampler.set_epoch(state.epoch)
            for x, y in state.batches(data):
                loss = (net(x) - y).square().mean().item()
                worker.collective(f"step {x.flatten().tolist()}")
                state.losses.append(loss)
                if len(state.losses) == kill_at:
                    raise Killed
        return state

    check_kills(script, kills=(5, 12) if workers else KILLS)


def test_a_killed_loop_draws_no_samples_that_it_needs_not() -> None:
    read: list[int] = []

    class Counting(torch_data.TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            read.append(index)
            return super().__getitem__(index)

        __getitems__ = None

    def script(worker: FakeWorker, kill_at: int | None) -> State:
        data = torch_data.DataLoader(Counting(*DATA.tensors), BATCH, shuffle=True)
        return script_of(lambda: data)(worker, kill_at)

    arena = FakeArena()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        begin_process()
        script(worker, 10)
    del read[:]
    with incarnation(arena, 1) as worker:
        begin_process()
        script(worker, None)
    assert len(read) == EPOCHS * SAMPLES - 9 * BATCH


@pytest.mark.shows
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.job)])
def test_an_elastic_sampler_goes_on_as_it_was(
    monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(ElasticSampler, "present_ranks", staticmethod(lambda: (1, 2)))

    def script(worker: FakeWorker, kill_at: int | None) -> State:
        sampler = ElasticSampler(DATA, seed=3)
        data = torch_data.DataLoader(Noisy(), 2, sampler=sampler, num_workers=workers)
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), 0.05)
        values = {"model": net, "optimizer": optimizer, "sampler": sampler}
        return train(State(**values, losses=[], snapshot_steps=3), data, worker, kill_at)

    expected = check_kills(script, kills=(5, 12) if workers else KILLS)
    assert expected.sampler.state_dict()["epoch"] == EPOCHS


@pytest.mark.shows
def test_an_elastic_sampler_deals_what_is_left_to_other_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two steps with 2 ranks, the rest of the epoch with 3: every sample once."""
    ranks = [(0, 2)]
    monkeypatch.setattr(ElasticSampler, "present_ranks", staticmethod(lambda: ranks[-1]))
    drawn: list[int] = []
    for rank in range(3):
        ranks[:] = [(min(rank, 1), 2)]
        sampler = ElasticSampler(SAMPLES, seed=3)
        state = State(sampler=sampler)
        loaded = torch_data.DataLoader(torch.arange(SAMPLES), 2, sampler=sampler)
        state.sync()
        for number, batch in enumerate(state.batches(loaded)):
            if number >= 2 or rank < 2:
                drawn += batch.tolist()
            assert sampler.processed_num == (4, 8, 14, 20)[number]
            if number == 1:
                ranks.append((rank, 3))
        assert (state.epoch, state.batch, sampler.epoch) == (1, 0, 1)
    assert sorted(set(drawn)) == list(range(SAMPLES))
    assert len(drawn) == SAMPLES


def test_misuse_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ElasticSampler, "present_ranks", staticmethod(lambda: (0, 1)))
    sampler = ElasticSampler(4)
    data = torch_data.DataLoader(torch.arange(4), sampler=sampler)
    with pytest.raises(HvdFtError, match="ElasticSampler is not in this State"):
        next(State().batches(data))
    whole = torch_data.DataLoader(torch.arange(4), batch_size=None, sampler=sampler)
    with pytest.raises(HvdFtError, match="has no batch_size"):
        next(State(sampler=sampler).batches(whole))


def test_data_that_ends_elsewhere_is_named() -> None:
    arena = FakeArena()

    def script(rows: int) -> None:
        state = State(snapshot_steps=1)
        state.sync()
        for _ in state.batches(torch_data.DataLoader(torch.arange(rows))):
            if state.batch == 5:
                raise Killed

    with incarnation(arena, 0), pytest.raises(Killed):
        script(6)
    with incarnation(arena, 1), pytest.raises(HvdFtError, match=r"does not end where it did \(5"):
        script(4)


def test_a_pass_that_other_ranks_have_filled_up_is_over() -> None:
    """10 samples are 4 steps for 3 ranks; 2 ranks have drawn as much after 6 steps, and have 5."""
    data = torch_data.DataLoader(torch.arange(5))
    position = DataPosition()
    for batches, left in ((4, [4]), (5, []), (6, [])):
        position.begin(data)
        position.skip(data, batches)
        assert [int(each) for each in position.batches(data)] == left
