"""Trains with DistributedDataParallel on ranks with unequal data, by torch's Join; prints digests.

Args:
    divide: `initial` divides gradients by the number of all ranks; `training` by that of the ranks
        that have data left.
    snapshots: `snapshots` with hvd_ft's State; `none` without.
    death: which ranks die in their first incarnation, separated by commas: `joined` is rank 1, when
        it has no data left and has taken part in two steps of the others; `training` is rank 0 in
        a step that it does with rank 2 alone. `-`: none.
"""

import hashlib
import os
import signal
import sys
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hvd_ft.torch as hvd
import hvd_ft.torch.distributed  # noqa: F401 (makes the backend known)

INITIAL, SNAPSHOTS = sys.argv[1] == "initial", sys.argv[2] == "snapshots"
DEATHS = sys.argv[3].split(",")
EPOCHS, BATCH = 2, 4
BATCHES = (7, 3, 6)  # by rank
DYING_STEP = 5  # of rank 0: rank 1 has joined


class Shadow(JoinHook):
    """Counts the steps in which a rank takes part without data, and ends it in the third."""

    def __init__(self) -> None:
        self._steps = 0

    def main_hook(self) -> None:
        self._steps += 1
        if self._steps == 3 and dist.get_rank() == 1:
            die("joined")


class Shadowing(Joinable):
    """Has no collectives of its own."""

    def __init__(self) -> None:
        super().__init__()

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return Shadow()

    @property
    def join_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def join_process_group(self) -> Any:
        return dist.group.WORLD


def die(death: str) -> None:
    if death in DEATHS and hvd.incarnation() == 0:
        print("DIES", death, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    dist.init_process_group("hvd_ft")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )
    module = DistributedDataParallel(model, bucket_cap_mb=0.0005)
    optimizer = torch.optim.Adam(module.parameters(), 0.01)
    torch.manual_seed(10 + rank)
    data = TensorDataset(torch.randn(BATCHES[rank] * BATCH, 8))
    loader = DataLoader(data, BATCH, shuffle=True, generator=torch.Generator().manual_seed(3))
    state = hvd.State(snapshot_steps=2, model=model, optimizer=optimizer) if SNAPSHOTS else None
    if state is None:
        for epoch in range(EPOCHS):
            train(module, optimizer, epoch, enumerate(loader))
    else:
        state.sync()
        while state.epoch < EPOCHS:
            batches = ((state.batch, batch) for batch in state.batches(loader))
            train(module, optimizer, state.epoch, batches)
        state.finish()
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    own = torch.rand(2).numpy().tobytes()
    digests = [hashlib.sha256(each).hexdigest()[:16] for each in (weights, own)]
    print("RESULT", rank, hvd.incarnation(), *digests, flush=True)


def train(module: Any, optimizer: Any, epoch: int, batches: Iterable[tuple[int, Any]]) -> None:
    """Goes through this rank's batches, and takes part in the steps of the others behind them."""
    with Join([module, Shadowing()], divide_by_initial_world_size=INITIAL):
        for number, (batch,) in batches:
            optimizer.zero_grad()
            loss = (module(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
            if epoch == 0 and dist.get_rank() == 0 and number == DYING_STEP:
                die("training")
            loss.backward()
            optimizer.step()


main()
