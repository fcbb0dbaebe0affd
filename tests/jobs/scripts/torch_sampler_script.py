"""Trains with PyTorch on samples that an ElasticSampler deals out.

Every step adds up, over all ranks, how often each sample was trained with: a buffer of the model,
so a snapshot has it. Each rank prints a hash of what it ended with, and these counts. When so many
of PAUSES steps are done, and there is a file to be waited for, rank 0 tells so on stderr and waits.

Args:
    style: `loop` with Horovod's DistributedOptimizer, `ddp` with DistributedDataParallel.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hvd_ft.torch as hvd
import hvd_ft.torch.distributed  # noqa: F401 (makes the backend known)
from hvd_ft.system.await_file import await_file

STYLE = sys.argv[1]
SAMPLES, BATCH, EPOCHS = 50, 4, 3
PAUSES = {5: "AWAIT", 9: "AWAIT_MORE"}
EVERY = int(os.environ["EVERY"]) if "EVERY" in os.environ else None  # steps between snapshots


class Counting(torch.nn.Module):
    """Counts its samples."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 1))
        self.register_buffer("counts", torch.zeros(SAMPLES))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def wait(steps: int) -> None:
    if hvd.rank() == 0 and steps in PAUSES and PAUSES[steps] in os.environ:
        print(f"waiting for the test after {steps} steps", file=sys.stderr, flush=True)
        assert await_file(Path(os.environ[PAUSES[steps]]), 200)


def sum_of_all(tensor: torch.Tensor) -> torch.Tensor:
    if STYLE == "loop":
        return hvd.allreduce(tensor, op=hvd.Sum)
    dist.all_reduce(tensor)
    assert (dist.get_rank(), dist.get_world_size()) == (hvd.rank(), hvd.size())
    return tensor


def main() -> None:
    if STYLE == "ddp":
        dist.init_process_group("hvd_ft")
    else:
        hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    x = torch.rand(SAMPLES, 6)
    sampler = hvd.ElasticSampler(SAMPLES, seed=3)
    data = torch.utils.data.TensorDataset(x, torch.arange(SAMPLES))
    loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler)
    model = Counting()
    optimizer: Any = torch.optim.Adam(model.parameters(), 0.01)
    module: Any = model
    if STYLE == "ddp":
        module = DistributedDataParallel(model)
    else:
        named = model.named_parameters()
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=named)
    state = hvd.State(model=model, optimizer=optimizer, sampler=sampler, snapshot_steps=EVERY)
    state.sync()
    while state.epoch < EPOCHS:
        for rows, indices in state.batches(loader):
            optimizer.zero_grad()
            (module(rows) - rows[:, :1].sin()).square().mean().backward()
            optimizer.step()
            once = torch.zeros(SAMPLES).index_add_(0, indices, torch.ones(len(indices)))
            model.counts += sum_of_all(once)
            model.steps += 1
            wait(int(model.steps))
    state.finish()
    sum_of_all(torch.ones(1))
    found = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    counts = json.dumps([int(count) for count in model.counts], separators=(",", ":"))
    digest = hashlib.sha256(found).hexdigest()[:16]
    # One write, or the ranks' lines mix.
    sys.stdout.write(f"END {hvd.rank()} of {hvd.size()} {digest} {counts}\n")


main()
