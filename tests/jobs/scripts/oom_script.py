"""Trains; with GROUP, rank 1 goes over that control group's memory limit once, in mid-training."""

import hashlib
import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

STEPS, GREEDY_STEP, BYTES = 20, 12, 256 << 20

hvd.init()
weights = tf.Variable(tf.zeros([1000]))
state = hvd.State(variables=[weights], snapshot_steps=5)
state.sync()
while state.batch < STEPS:
    gradient = tf.sin(weights + tf.range(1000.0) * (1 + hvd.rank() + state.batch))
    weights.assign_sub(0.1 * hvd.allreduce(gradient, name="gradient"))
    group = os.environ.get("GROUP")
    if group and state.batch == GREEDY_STEP and hvd.rank() == 1 and hvd.incarnation() == 0:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
        np.ones(BYTES, np.uint8)
    state.batch += 1
    state.commit()
digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
sys.stdout.write(f"RESULT {hvd.rank()} {hvd.incarnation()} {digest}\n")  # in one piece
