"""Trains with PyTorch on large weights that ranks share, with statistics and generators of their
own. Rank 0 tells on stderr when ten steps are done, and waits after 40 until the file AWAIT is
there, if there is such a variable.

Args:
    style: `loop` with Horovod's DistributedOptimizer, `ddp` with DistributedDataParallel.
    epochs: how many.
"""

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hvd_ft.torch as hvd
import hvd_ft.torch.distributed  # noqa: F401 (makes the backend known)
from hvd_ft.system.await_file import await_file

STYLE, EPOCHS = sys.argv[1], int(sys.argv[2])
STEPS, BATCH, WIDTH, LAST = 24, 8, 800, 40
EVERY = 8  # steps between snapshots


def tell(steps: int) -> None:
    if hvd.rank() == 0 and steps % 10 == 0:
        print(f"{steps} steps are done", file=sys.stderr, flush=True)
    if hvd.rank() == 0 and steps == LAST and (awaited := os.environ.get("AWAIT")):
        assert await_file(Path(awaited), 200)


def digest(tensors: Iterable[torch.Tensor]) -> str:
    found = b"".join(each.detach().numpy().tobytes() for each in tensors)
    return hashlib.sha256(found).hexdigest()[:16]


def main() -> None:
    if STYLE == "ddp":
        dist.init_process_group("hvd_ft")
    else:
        hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    x = torch.randn(STEPS * BATCH * hvd.size(), 64)
    own = torch.utils.data.TensorDataset(x[hvd.rank() :: hvd.size()])
    layers = [torch.nn.Linear(64, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.Dropout(0.1)]
    middle = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model: Any = torch.nn.Sequential(*layers, *middle, torch.nn.Linear(WIDTH, 1))
    optimizer: Any = torch.optim.Adam(model.parameters(), 1e-3)
    module = model
    if STYLE == "ddp":
        module = DistributedDataParallel(model, broadcast_buffers=False)
    else:
        named = model.named_parameters()
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=named)
    torch.manual_seed(70 + hvd.rank())
    loader = torch.utils.data.DataLoader(own, BATCH, shuffle=True)
    state = hvd.State(model=model, optimizer=optimizer, steps=0, snapshot_steps=EVERY)
    state.sync()
    while state.epoch < EPOCHS:
        for (rows,) in state.batches(loader):
            optimizer.zero_grad()
            (module(rows) - rows.sum(1, keepdim=True).sin()).square().mean().backward()
            optimizer.step()
            state.steps += 1
            tell(state.steps)
    state.finish()
    moments = [each for its in optimizer.state.values() for each in its.values()]
    statistics = [*model.buffers(), torch.rand(2)]
    digests = map(digest, (model.parameters(), moments, statistics))
    # One write, or the ranks' lines mix.
    sys.stdout.write(f"END {hvd.rank()} of {hvd.size()} {' '.join(digests)}\n")


main()
