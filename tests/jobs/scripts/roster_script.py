"""A training loop in whole numbers whose ranks may become fewer; each prints what it ends with.

Every step adds up something of each present rank, in a compiled function, averages, gathers and
broadcasts; so the result tells which ranks took part in which step. Rank 0 tells on stderr when
so many of PAUSES are done, and waits then until the file of its variable is there, if it is set.
With a variable SENDS rank 0 sends rank 1 a message before.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft import p2p

STEPS, PAUSES = 40, {10: "AWAIT_FIRST", 20: "AWAIT", 28: "AWAIT_MORE"}
VALUES = 5000  # more than a view's 16 KiB

hvd.init()
weights = tf.Variable(tf.range(VALUES, dtype=tf.float64))
state = hvd.State(variables=[weights], sizes=[], resets=0, heard=0)


def reset() -> None:
    state.resets += 1
    state.heard = hvd.size()


@tf.function
def step(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    mine = tf.math.floormod(3.0 * weights + tf.cast(hvd.rank_op(), tf.float64) + number, 17.0)
    total = hvd.allreduce(mine, op=hvd.Sum, name="sum")
    average = hvd.allreduce(mine, op=hvd.Average, name="average")
    own = tf.cast(tf.fill([hvd.rank_op() + 1], hvd.rank_op()), tf.int32)
    gathered = hvd.allgather(own, name="gathered")
    last = hvd.broadcast(mine[:3], root_rank=1, name="root")
    weights.assign(total)
    return average, gathered, last


if "SENDS" in os.environ and hvd.rank() < 2:
    p2p.ft_send([1], 1) if hvd.rank() == 0 else p2p.ft_recv(None, 0)
state.register_reset_callbacks([reset])
state.sync()
while state.batch < STEPS:
    awaited = os.environ.get(PAUSES.get(state.batch, "")) if hvd.rank() == 0 else None
    if awaited:
        print(f"{state.batch} steps are done", file=sys.stderr, flush=True)
        while not Path(awaited).exists():
            time.sleep(0.01)
    before = weights.numpy()
    rank, size = hvd.rank(), hvd.size()
    average, gathered, last = step(tf.constant(float(state.batch), tf.float64))
    parts = [(3 * before + r + state.batch) % 17 for r in range(size)]
    assert np.array_equal(weights.numpy(), sum(parts)), (rank, size, state.batch)
    assert np.allclose(average.numpy(), sum(parts) / size, rtol=1e-15)
    assert np.array_equal(gathered.numpy(), np.repeat(np.arange(size), np.arange(size) + 1))
    assert np.array_equal(last.numpy(), parts[1][:3])
    state.sizes = [*state.sizes, size]
    state.batch += 1
    state.commit()
state.finish()
place = f"{hvd.local_rank()} of {hvd.local_size()}, {hvd.cross_rank()} of {hvd.cross_size()}"
sys.stdout.write(
    f"END {hvd.rank()} of {hvd.size()}: {place}; {weights.numpy().sum():.0f} {state.sizes} "
    f"{state.resets} {state.heard}\n"
)
