"""Trains on a device whose memory the host cannot read, and prints digests.

Args:
    style: `loop` with Horovod's DistributedOptimizer, `ddp` with DistributedDataParallel.
    library: of the device (fake_device.py); "-" for the CPU.
"""

import hashlib
import sys
from typing import Any

import torch
import torch.distributed as dist
from fake_device import load
from torch.nn.parallel import DistributedDataParallel

import hvd_ft.torch as hvd
import hvd_ft.torch.distributed  # noqa: F401 (makes the backend known)

STYLE, LIBRARY = sys.argv[1:3]
EPOCHS, SAMPLES, BATCH = 3, 24, 4


class Centred(torch.nn.Module):
    """Subtracts a running mean: a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.mean += 0.1 * (rows.mean(0) - self.mean)
        return rows - self.mean


def main() -> None:
    device = torch.device("cpu") if LIBRARY == "-" else load(LIBRARY)
    if STYLE == "ddp":
        dist.init_process_group("hvd_ft")
    else:
        hvd.init()
    torch.manual_seed(7)
    layers = [torch.nn.Linear(8, 16), Centred(), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(16, 1)).to(device)
    optimizer: Any = torch.optim.Adam(model.parameters(), 0.01)
    module: Any = model
    if STYLE == "ddp":
        module = DistributedDataParallel(model, bucket_cap_mb=0.0005)
    else:
        named = model.named_parameters()
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=named)
    its = torch.utils.data.TensorDataset(
        torch.randn(SAMPLES * hvd.size(), 8)[hvd.rank() :: hvd.size()]
    )
    loader = torch.utils.data.DataLoader(its, BATCH, shuffle=True)
    total = torch.zeros((), device=device)
    state = hvd.State(model=model, optimizer=optimizer, total=total, snapshot_steps=2)
    state.sync()
    while state.epoch < EPOCHS:
        for (rows,) in state.batches(loader):
            here = rows.to(device)
            loss = (module(here) - here.sum(1, keepdim=True).sin()).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            state.total += loss.detach()
        (mean,) = hvd.grouped_allreduce([state.total])
        rows_of_all = hvd.allgather(state.total.reshape(1))
        assert {mean.device, rows_of_all.device} == {device}
        assert torch.equal(mean.cpu(), rows_of_all.cpu().mean())
    state.finish()
    kept = [*model.parameters(), *model.buffers(), *moments(optimizer)]
    assert all(each.device == device for each in kept if each.dim()), "as the script has made them"
    print(
        "RESULT",
        hvd.rank(),
        hvd.incarnation(),
        digest(model.parameters()),
        digest([*kept, state.total]),
    )


def moments(optimizer: Any) -> list[torch.Tensor]:
    return [value for state in optimizer.state.values() for value in state.values()]


def digest(tensors: Any) -> str:
    found = b"".join(each.detach().cpu().numpy().tobytes() for each in tensors)
    return hashlib.sha256(found).hexdigest()[:16]


main()
