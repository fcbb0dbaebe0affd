"""Trains with Accelerate, in the style that the first argument names; prints digests of the result.

The second argument is "snapshots" or "none".
"""

import hashlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import InitProcessGroupKwargs
from noisy_data import Noisy, data, pause
from torch.utils.data import DataLoader, IterableDataset

import hvd_ft.torch as hvd
import hvd_ft.torch.accelerate as hvd_accelerate

STYLE, MODE = sys.argv[1:3]
EPOCHS = 3
warnings.filterwarnings("ignore")


class Stream(IterableDataset):
    """Has no length."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(22 * hvd.size()):
            yield torch.randn(6), torch.tensor(number % 2)


def train(accelerator: Accelerator) -> None:
    layers = [torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU()]
    model: Any = torch.nn.Sequential(*layers, torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))
    optimizer: Any = torch.optim.Adam(model.parameters(), 0.01)
    scheduler: Any = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=100)
    workers = {"num_workers": 2, "persistent_workers": True} if STYLE == "workers" else {}
    is_stream = STYLE in ("stream", "dispatched")
    loader: Any = DataLoader(
        Stream() if is_stream else Noisy(*data(22 * accelerator.num_processes, seed=1).tensors),
        4,
        shuffle=not is_stream,
        **workers,
    )
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    state = hvd_accelerate.State(
        accelerator,
        snapshot_steps=1,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        losses=[],
    )
    if MODE == "snapshots":
        state.sync()
    while state.epoch < EPOCHS:
        model.train()
        for inputs, labels in batches(state, loader):
            pause(len(state.losses))
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            state.losses.append(accelerator.gather_for_metrics(loss.detach()).tolist())
        model.eval()
        with torch.no_grad():
            probe = model(torch.ones(4, 6))
        state.losses.append(accelerator.reduce(probe.sum(), "mean").item())
    if MODE == "snapshots":
        state.finish()
    states = [value for each in optimizer.state.values() for value in each.values()]
    shared = digest(*model.state_dict().values(), *states, scheduler.get_last_lr(), state.losses)
    own = digest(accelerator.step, torch.get_rng_state())
    rank = accelerator.process_index
    print(f"RESULT {rank} {hvd.incarnation()} {shared} {own}", flush=True)


def batches(state: Any, loader: Any) -> Iterator[Any]:
    if MODE == "snapshots":
        yield from state.batches(loader)
    else:
        yield from loader
        state.epoch += 1


def digest(*values: Any) -> str:
    found = hashlib.sha256()
    for value in values:
        is_tensor = isinstance(value, torch.Tensor)
        found.update(value.detach().numpy().tobytes() if is_tensor else repr(value).encode())
    return found.hexdigest()[:16]


def main() -> None:
    torch.manual_seed(3)
    dispatch = None if STYLE == "dispatched" else False
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=3 if STYLE == "accumulate" else 1,
        mixed_precision="bf16" if STYLE == "bf16" else "no",
        dataloader_config=DataLoaderConfiguration(
            dispatch_batches=dispatch, use_seedable_sampler=STYLE == "seedable"
        ),
        kwargs_handlers=[InitProcessGroupKwargs(backend="gloo" if STYLE == "gloo" else "hvd_ft")],
    )
    torch.manual_seed(accelerator.process_index)
    train(accelerator)


if __name__ == "__main__":
    main()
