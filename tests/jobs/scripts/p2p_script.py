"""What a worker of test_p2p.py does: the style is its argument."""

import hashlib
import json
import os
import signal
import sys

import numpy as np

from hvd_ft import native
from hvd_ft.p2p import ft_recv, ft_send, rank, size
from hvd_ft.worker.training_loop import TrainingLoop

STEPS = 20
worker = native.worker()
assert worker is not None
me, ranks = rank(), size()
again = worker.incarnation > 0
before, after = (me - 1) % ranks, (me + 1) % ranks


def ring_allreduce(data: np.ndarray) -> None:
    """Sums an array over all ranks, in place."""
    chunks = np.array_split(data, ranks)
    for step in range(ranks - 1):
        ft_send(chunks[(me - step) % ranks], after, step)
        chunks[(me - step - 1) % ranks] += ft_recv(None, before, step)
    for step in range(ranks - 1):
        ft_send(chunks[(me + 1 - step) % ranks], after, step)
        ft_recv(chunks[(me - step) % ranks], before, step)


def step_of(weights: np.ndarray, step: int) -> np.ndarray:
    change = np.sin(weights + 10 * me + step)
    ring_allreduce(change)
    return weights + change / ranks


def tell(weights: np.ndarray) -> None:
    digest = hashlib.sha256(weights.tobytes()).hexdigest()[:16]
    os.write(1, (json.dumps({"rank": me, "digest": digest}) + "\n").encode())


def train(steps: int, snapshots: bool, elements: int = 5000, every: int | None = 5) -> None:
    """A training; something is sent before the loop and after it."""
    weights = step_of(np.zeros(elements), -1)
    loop = TrainingLoop(worker, every, 0.01 if every else 1e-9)
    values = loop.begin() if snapshots else None
    first = 0
    if values is not None:
        arrays, values = loop.snapshot()
        weights, first = arrays["weights"].copy(), values["step"]
        loop.jump()
    for step in range(first, steps):
        weights = step_of(weights, step)
        if not snapshots:
            worker.set_step(step + 1)
            continue
        loop.set_step(step + 1)
        if loop.wants_snapshot(step + 1):
            kept = {"weights": weights}
            loop.write(step + 1, lambda kept=kept: (kept, {}))
    if snapshots:
        loop.end()
    tell(step_of(weights, steps))


def kinds() -> None:
    other = 1 - me
    ft_send(np.arange(6, dtype=np.int8).reshape(2, 3) + me, other, 5)
    ft_send(np.float32(2.5), other, -7)
    ft_send(np.zeros((0, 3), bool), other, 5)
    ft_send([1.5 + 2j], other)
    large = np.full(3 << 20, me, np.int64)
    ft_send(large, other, 8)
    large[:] = -1  # it has been sent
    own = np.empty(1, np.complex128)
    assert ft_recv(own, other) is own  # later than others, by its tag
    assert own[0] == 1.5 + 2j
    first, second = ft_recv(None, other, 5), ft_recv(None, other, 5)
    assert first.dtype == np.int8
    assert (first == np.arange(6).reshape(2, 3) + other).all()
    assert second.shape == (0, 3)
    assert second.dtype == bool
    assert (ft_recv(None, other, 8) == other).all()
    assert ft_recv(None, other, -7).shape == ()
    ft_send(np.ones(2), me)  # to itself
    assert ft_recv(None, me).sum() == 2
    os.write(1, b"well\n")


def other_than_before(what: str) -> None:
    """Rank 1 is restarted, and then sends something else."""
    changed = what if again else ""
    if me == 0:
        signal.pause()
    data = np.ones(5 if changed == "shape" else 4)
    ft_send(2 * data if changed == "data" else data, 0, 4 if changed == "tag" else 3)
    os.kill(os.getpid(), signal.SIGKILL)


def other_receive() -> None:
    """Rank 0 is restarted and asks for another tag."""
    if me == 1:
        ft_send(np.ones(1), 0, 1)
        ft_send(np.ones(1), 0, 2)
        ft_recv(None, 0, 3)
        return
    ft_recv(None, 1, 2 if again else 1)  # both are there
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_ever() -> None:
    if me == 0:
        ft_recv(None, 1, 9)


def late() -> None:
    if me == 1:
        signal.pause()
    ft_recv(None, 1, 9)


def stopped() -> None:
    if me == 1:
        sys.exit(3)
    ft_recv(None, 1)


STYLES = {
    "loop": lambda: train(STEPS, True),
    "all": lambda: train(STEPS, False),
    "fill": lambda: train(200, False, 1 << 20),
    "fill in a loop": lambda: train(80, True, 1 << 17),
    "fill in a loop that chooses": lambda: train(80, True, 1 << 17, None),
    "kinds": kinds,
    "other tag": lambda: other_than_before("tag"),
    "other shape": lambda: other_than_before("shape"),
    "other data": lambda: other_than_before("data"),
    "other receive": other_receive,
    "ended": wait_for_ever,
    "late": late,
    "stopped": stopped,
}
STYLES[sys.argv[1]]()
