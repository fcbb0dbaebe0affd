"""Trains in floats, in which a wrong bit grows; checks the weights, and what is fused.

Each step fuses all gradients by the fusion threshold that the op log says. At the end each rank
prints a digest of the weights, and rank 0 the log. ONE_NODE=1: sums are in rank order.
"""

import hashlib
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft import native
from hvd_ft.native import logs

STEPS, TENSORS, ELEMENTS = 45, 12, 1 << 17
GRADIENT_BYTES = 4 * ELEMENTS
FUSED_TO = 8 * 64  # Horovod rounds the threshold up to whole units of this on each local rank

hvd.init()
rank, size = hvd.rank(), hvd.size()
observer = native.Observer(os.environ["HOROVOD_FT_DIR"])
worker = native.worker()
assert worker is not None


def gradient_of(weights: np.ndarray, rank: int) -> np.ndarray:
    """All ranks' sum makes a step of the logistic map, which doubles differences and more."""
    return (weights * (1 - weights) * np.float32(3.7 * (rank + 1) * 2 / size / (size + 1))).astype(
        np.float32
    )


@tf.function
def total_of(gradients: Any) -> Any:
    return hvd.grouped_allreduce(gradients, op=hvd.Sum)


def threshold_at(op: int) -> int:
    """The fusion threshold with which an op was fused, as the log says."""
    threshold = 128 << 20
    for change in logs.tuned(observer):
        if change < op:
            found = re.match("tunes HOROVOD_FUSION_THRESHOLD to ([0-9]+)", signature(change))
            assert found is not None
            threshold = int(found[1])
    return threshold


def signature(op: int) -> str:
    found = logs.signature(observer, op)
    assert found is not None, op
    return found


def check_fused(first: int, end: int) -> None:
    """Checks how many gradients each op of a step has."""
    changes = logs.tuned(observer)
    found = [len(signature(op).splitlines()) for op in range(first, end) if op not in changes]
    unit = FUSED_TO * hvd.local_size()
    room = -(-threshold_at(end) // unit) * unit
    most = max(1, room // GRADIENT_BYTES)
    full, rest = divmod(TENSORS, most)
    assert found == [most] * full + [rest] * (rest > 0), (found, room)


start = np.random.default_rng(7).random((TENSORS, ELEMENTS), np.float32)
state = hvd.State(snapshot_steps=5, weights=start, step=0)
state.sync()
while state.step < STEPS:
    before = worker.cursor()
    own = gradient_of(state.weights, rank)
    state.weights = np.array([x.numpy() for x in total_of([tf.constant(x) for x in own])])
    check_fused(before, worker.cursor())
    state.step += 1
    state.commit()
state.finish()

if os.environ.get("ONE_NODE"):
    expected = start
    for _ in range(STEPS):
        expected = sum((gradient_of(expected, r) for r in range(1, size)), gradient_of(expected, 0))
    assert expected.tobytes() == state.weights.tobytes()
sys.stdout.write(f"rank {rank}: {hashlib.sha256(state.weights.tobytes()).hexdigest()}\n")
sys.stdout.flush()
hvd.barrier()
if rank == 0:
    subprocess.run([sys.executable, "-m", "hvd_ft.cli", "log", "show"], check=True)
hvd.barrier()
