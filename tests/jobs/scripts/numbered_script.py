"""Trains in a loop whose requests are numbered after two steps; prints what came out.

Some steps ask for the same tensors in a process set, for other shapes, or for what ranks do not
agree about. Rank 0 also prints how many bytes the others have announced in each step.
"""

import os
import sys
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft import native
from hvd_ft.native import logs

STEPS, TENSORS, WRONG_AT = 14, 20, 9

pair = hvd.ProcessSet([0, 2])
hvd.init(process_sets=[pair])
rank = hvd.rank()
observer = native.Observer(os.environ["HOROVOD_FT_DIR"])


@tf.function(reduce_retracing=False)
def of_all(values: Any) -> Any:
    """One request for each value, all at once."""
    return [hvd.allreduce(x, name=f"a/long/name/{i}", op=hvd.Sum) for i, x in enumerate(values)]


@tf.function(reduce_retracing=False)
def of_pair(values: Any) -> Any:
    return [
        hvd.allreduce(x, name=f"a/long/name/{i}", op=hvd.Sum, process_set=pair)
        for i, x in enumerate(values)
    ]


def wrong(step: int) -> bool:
    """Asks for a known tensor, but rank 1 for another shape of it; whether that was refused."""
    shape = [TENSORS, 2] if rank == 1 and step == WRONG_AT else [TENSORS]
    try:
        hvd.allreduce(tf.ones(shape), name="shaped", op=hvd.Sum)
    except tf.errors.OpError as error:
        assert "Mismatched ALLREDUCE tensor shapes" in str(error), error
        return True
    return False


state = hvd.State(snapshot_steps=3, weights=np.arange(TENSORS, dtype="float32"), step=0, refused=0)
state.sync()
while state.step < STEPS:
    before = logs.announced(observer)
    gradient = (3 * state.weights + rank + state.step) % 17
    weights = np.array([x.numpy() for x in of_all([tf.constant(x) for x in gradient])])
    if state.step % 3 == 2 and rank in (0, 2):
        of_pair([tf.constant(x) for x in weights])
    state.refused += wrong(state.step)
    state.weights = weights
    state.step += 1
    if rank == 0:
        now = logs.announced(observer)
        sys.stderr.write(f"step {state.step}: {now.bytes - before.bytes} bytes\n")
    state.commit()
state.finish()
sys.stdout.write(f"rank {rank}: {state.refused} refused, {state.weights.sum():.0f}\n")
sys.stdout.flush()
hvd.barrier()
