"""Trains a model in DistributedDataParallel on the backend hvd_ft, and prints digests.

Args:
    style: which of DistributedDataParallel's features are used, joined by "+"; see `wrapped`,
        `step` and `Model`.
    snapshots: `snapshots` with hvd_ft's State; `none` without.
"""

import contextlib
import hashlib
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hvd_ft.torch as hvd
import hvd_ft.torch.distributed  # noqa: F401 (makes the backend known)

STYLE, SNAPSHOTS = sys.argv[1].split("+"), sys.argv[2] == "snapshots"
EPOCHS, SAMPLES, BATCH = 3, 24, 4
SMALL = 0.0005  # MB: every parameter gets a bucket of its own, or nearly


class Model(torch.nn.Module):
    """Has a part that only every other batch uses, if the style has `unused`.

    With `static` only rank 0 uses that part, and no rank uses another one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 32)
        self.dropout = torch.nn.Dropout(0.2)
        self.norm = torch.nn.BatchNorm1d(32)
        self.other = torch.nn.Linear(32, 32)
        self.last = torch.nn.Linear(32, 1)
        if "static" in STYLE:
            self.never = torch.nn.Linear(32, 1)

    def forward(self, x: torch.Tensor, number: int) -> torch.Tensor:
        hidden = self.norm(self.dropout(torch.relu(self.first(x))))
        if "static" in STYLE:
            is_used = dist.get_rank() == 0
        else:
            is_used = "unused" not in STYLE or number % 2 == 1
        if is_used:
            hidden = hidden + self.other(hidden)
        return self.last(hidden)


def wrapped(model: torch.nn.Module) -> Any:
    more: dict[str, Any] = {"bucket_cap_mb": SMALL}
    more["find_unused_parameters"] = "unused" in STYLE
    more["static_graph"] = "static" in STYLE
    more["gradient_as_bucket_view"] = "views" in STYLE
    module = DistributedDataParallel(model, **more)
    if "hook" in STYLE:
        module.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return module


def main() -> None:
    dist.init_process_group("hvd_ft")
    rank = dist.get_rank()
    torch.manual_seed(1)
    inputs = torch.randn(SAMPLES * dist.get_world_size(), 8)
    model = Model()
    module = wrapped(model)
    optimizer = torch.optim.Adam(module.parameters(), 0.01)
    its = TensorDataset(inputs[rank :: dist.get_world_size()])
    loader = DataLoader(its, BATCH, shuffle=True, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(10 + rank)
    if SNAPSHOTS:
        state = hvd.State(snapshot_steps=2, model=model, optimizer=optimizer, seen=0)
        state.sync()
        while state.epoch < EPOCHS:
            for (batch,) in state.batches(loader):
                state.seen += 1
                step(module, optimizer, batch, state.seen)
        state.finish()
    else:
        seen = 0
        for _ in range(EPOCHS):
            own = its.tensors[0][: len(its) - 4 * rank] if "join" in STYLE else its.tensors[0]
            with module.join() if "join" in STYLE else contextlib.nullcontext():
                for batch in own.split(BATCH):
                    seen += 1
                    step(module, optimizer, batch, seen)
    weights = hashlib.sha256()
    for parameter in model.parameters():
        weights.update(parameter.detach().numpy().tobytes())
    own_draw = torch.rand(2).numpy().tobytes()
    digests = weights.hexdigest()[:16], hashlib.sha256(own_draw).hexdigest()[:16]
    print("RESULT", rank, hvd.incarnation(), *digests, flush=True)


def step(module: Any, optimizer: Any, batch: torch.Tensor, number: int) -> None:
    optimizer.zero_grad(set_to_none="kept" not in STYLE)
    if "accumulate" in STYLE:
        with module.no_sync():
            loss(module, batch, number).backward()
    loss(module, batch, number).backward()
    optimizer.step()


def loss(module: Any, batch: torch.Tensor, number: int) -> torch.Tensor:
    return (module(batch, number) - batch.sum(1, keepdim=True)).pow(2).mean()


main()
