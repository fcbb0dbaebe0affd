"""Two groups of ranks train each their own weights, twice; prints what came out."""

import sys

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

STEPS = 30

pair, single = hvd.ProcessSet([0, 2]), hvd.ProcessSet([1])
hvd.init(process_sets=[pair, single])
mine = pair if pair.included() else single
weights = np.arange(40_000, dtype="float32")
for loop in range(2):
    state = hvd.State(snapshot_steps=4, weights=weights, step=0)
    state.sync()
    while state.step < STEPS:
        gradient = tf.constant((3 * state.weights + hvd.rank() + state.step) % 17)
        state.weights = hvd.allreduce(gradient, op=hvd.Sum, process_set=mine).numpy()
        state.step += 1
        state.commit()
    state.finish()
    weights = hvd.allreduce(tf.constant(state.weights), op=hvd.Sum, name=f"loop {loop}").numpy()
    sys.stdout.write(f"rank {hvd.rank()}: {loop} {state.weights.sum():.0f} {weights.sum():.0f}\n")
    sys.stdout.flush()
hvd.barrier()
