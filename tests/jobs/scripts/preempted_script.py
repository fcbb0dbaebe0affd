"""A loop that trains until its job is preempted; when it is resumed it does 20 steps more.

Each rank prints the step at which it began, that at which it ended, and its sum over all steps.
Arguments: a folder in which rank 0 leaves a file once all ranks have done 5 steps.
"""

import os
import sys
import time
from pathlib import Path

import tensorflow as tf

import hvd_ft.tensorflow as hvd

MORE_STEPS = 20
FAR = 100_000

hvd.init()
state = hvd.State(variables=[tf.Variable(0.0)], snapshot_steps=2, total=0.0, begun=0)
state.sync()
resumed = "SLURM_RESTART_COUNT" in os.environ
end = FAR
if resumed:
    state.begun = begun = state.batch
    end = begun + MORE_STEPS
while state.batch < end:
    one = tf.constant(float((hvd.rank() + 1) * (state.batch + 1)))
    state.total += float(hvd.allreduce(one, op=hvd.Sum, name="one"))
    if hvd.rank() == 0 and state.batch == 5 and not resumed:
        (Path(sys.argv[1]) / "trains").touch()
    if not resumed:
        time.sleep(0.05)  # a step takes its time
    state.batch += 1
    state.commit()
sys.stdout.write(f"RESULT {hvd.rank()} {state.begun} {state.batch} {state.total:.0f}\n")
