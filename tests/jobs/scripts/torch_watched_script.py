"""Trains with PyTorch, says when its hooks are called, and prints a digest of all that it has.

The model has what differs from rank to rank, or seems to be equal now and then: statistics of
batches, and sums of gradients that are not exchanged yet. One layer is so large that the ranks of a
node share what they store of it.
"""

import hashlib

import numpy as np
import torch

import hvd_ft.torch as hvd

STEPS, WIDTH = 40, 600

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(hvd.rank())  # the broadcast makes weights equal
model = torch.nn.ModuleDict(
    {
        "first": torch.nn.Linear(8, WIDTH),
        "norm": torch.nn.BatchNorm1d(WIDTH),
        "second": torch.nn.Linear(WIDTH, WIDTH),
        "last": torch.nn.Linear(WIDTH, 1),
    }
)
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(model.parameters(), 0.001),
    named_parameters=model.named_parameters(),
    backward_passes_per_step=2,
)
own = np.random.default_rng(hvd.rank())  # given to State, so each rank goes on with its own
state = hvd.State(model=model, optimizer=optimizer, own=own, best=0.0, snapshot_steps=3)


def say(*words: object) -> None:
    """Prints a line in one write, or the ranks' lines mix."""
    print(" ".join(map(str, words)) + "\n", end="", flush=True)


@hvd.on_divergence
def diverged(found: hvd.Divergence) -> None:
    """Prints what the hook is given."""
    say("HOOK", hvd.rank(), found.variable, found.step, found.rank, found.ranks, found.equal_step)


@hvd.on_restart
def restarted(restart: hvd.Restart) -> None:
    """Prints which incarnation it is."""
    say("RESTARTED", hvd.rank(), restart.incarnation)


@hvd.on_peer_failure
def failed(peer: hvd.Peer) -> None:
    """Prints who has failed."""
    say("FAILED", hvd.rank(), peer.rank)


@hvd.on_peer_recovered
def recovered(peer: hvd.Peer) -> None:
    """Prints who is back."""
    say("RECOVERED", hvd.rank(), peer.rank)


state.sync()
while state.batch < STEPS:
    rows = torch.from_numpy(state.own.random((4, 8), np.float32))
    hidden = model["norm"](model["first"](rows)).relu()
    model["last"](model["second"](hidden).relu()).square().mean().backward()
    if state.batch % 2:
        optimizer.step()
        optimizer.zero_grad()
    if hvd.rank() == 0 and state.batch > 15:
        state.best += 1.0  # rank 0 alone keeps it, from some step on
    state.batch += 1
    state.commit()
state.finish()
kept = [*model.parameters(), *model.buffers()]
contents = b"".join(each.detach().numpy().tobytes() for each in kept)
say("DONE", hvd.rank(), hashlib.sha256(contents).hexdigest()[:16])
