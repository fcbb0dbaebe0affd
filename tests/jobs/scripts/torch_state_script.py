"""Trains with PyTorch in one of several styles; each rank prints a digest of all it ends with.

Run as: torch_state_script.py plain|accumulate|unnamed|large|workers|bare

With `bare` it takes no snapshots.
"""

import hashlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import hvd_ft.torch as hvd

STYLE = sys.argv[1]
SAMPLES, BATCH, EPOCHS = 24, 4, 3  # samples of each rank: 6 steps an epoch
WIDTH = 900 if STYLE == "large" else 8  # its state is copied while training continues


class Noisy(torch.utils.data.Dataset):
    """Draws random numbers for each sample, in a worker if there is one."""

    def __len__(self) -> int:
        return SAMPLES * hvd.size()

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.linspace(0, 1, 5) * index / len(self)
        return x + torch.rand(5) / 10 + random.random() / 10, x.sum().sin().reshape(1)


def main() -> None:
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(7 + hvd.rank())
    random.seed(8 + hvd.rank())
    np.random.seed(9 + hvd.rank())
    hidden = [torch.nn.Linear(5, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.Dropout(0.2)]
    deep = [torch.nn.Linear(WIDTH, WIDTH)] if STYLE == "large" else []
    model = torch.nn.Sequential(*hidden, *deep, torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1))
    adam = torch.optim.Adam(model.parameters(), 0.01)
    optimizer = hvd.DistributedOptimizer(
        adam,
        named_parameters=model.named_parameters(),
        backward_passes_per_step=3 if STYLE == "accumulate" else 1,
    )
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    data = Noisy()
    sampler = torch.utils.data.DistributedSampler(data, hvd.size(), hvd.rank())
    workers = 2 if STYLE == "workers" else 0
    loader = torch.utils.data.DataLoader(
        data, BATCH, sampler=sampler, num_workers=workers, persistent_workers=workers > 0
    )
    state = hvd.State(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        total=0.0,
        means=[],
        snapshot_steps=4,
    )
    if STYLE == "bare":
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    else:
        state.sync()
    while state.epoch < EPOCHS:
        sampler.set_epoch(state.epoch)
        state.total = 0.0
        for x, y in batches(state, loader):
            state.total += step(state, model, optimizer, x, y)
        mean = hvd.allreduce(torch.tensor(state.total))  # without a name
        state.means.append(float(mean))
        scheduler.step(float(mean))
    if STYLE != "bare":
        state.finish()
    noise = float(torch.rand(())) + random.random() + float(np.random.rand())
    print(f"RESULT {hvd.rank()} {hvd.incarnation()} {digest(model)} {own(model, noise, state)}")


def batches(state: hvd.State, loader: Any) -> Iterator[Any]:
    if STYLE == "bare":
        yield from loader
        state.epoch += 1
    else:
        yield from state.batches(loader)


def step(
    state: hvd.State,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    x: torch.Tensor,
    y: torch.Tensor,
) -> float:
    loss = (model(x) - y).square().mean()
    loss.backward()
    if STYLE == "unnamed":
        with optimizer.skip_synchronize():
            optimizer.synchronize()
            handles = [hvd.allreduce_async(each.grad) for each in model.parameters()]
            for handle, each in zip(handles, model.parameters(), strict=True):
                each.grad += hvd.synchronize(handle)
            optimizer.step()
        optimizer.zero_grad()
    elif STYLE != "accumulate" or state.batch % 3 == 2:
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


def digest(model: torch.nn.Module) -> str:
    """What is equal on all ranks: the weights."""
    data = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    return hashlib.sha256(data).hexdigest()


def own(model: torch.nn.Module, noise: float, state: hvd.State) -> str:
    """What is a rank's own: batch statistics, what it draws next, and its losses."""
    data = b"".join(each.numpy().tobytes() for each in model.buffers())
    text = f"{noise!r} {state.means!r} {state.total!r}".encode()
    return hashlib.sha256(data + text).hexdigest()


if __name__ == "__main__":
    main()
