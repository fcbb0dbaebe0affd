"""Trains by fit and prints a hash of the final weights; `large` has a larger model.

AWAIT_SPARES may hold words like `1:12:2`: at the end of step 12 rank 1 waits until the job's warm
spare of number 2 is ready, so that a drill of the next step finds it.
"""

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from averaged import Averaged

import hvd_ft.tensorflow as hvd_tf
import hvd_ft.tensorflow.keras as hvd
from hvd_ft.system.await_file import await_file

EPOCHS, STEPS, BATCH = 3, 12, 4
AWAITED = {
    (int(rank), int(step)): number
    for rank, step, number in (w.split(":") for w in os.environ.get("AWAIT_SPARES", "").split())
}


class StepEnds(tf.keras.callbacks.Callback):
    """Waits for spares, and does a collective of its own at the end of an epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        step = int(self.model.optimizer.iterations)
        if (hvd.rank(), step) in AWAITED and hvd.incarnation() == 0:
            ready = Path(os.environ["HOROVOD_FT_DIR"], f"ready-{AWAITED[hvd.rank(), step]}")
            assert await_file(ready, 60)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        hvd.allreduce(tf.constant(float(epoch)), name="epoch")


def data() -> tf.data.Dataset:
    generator = np.random.default_rng(hvd.rank())
    x = generator.standard_normal((STEPS * BATCH, 6)).astype(np.float32)
    pairs = tf.data.Dataset.from_tensor_slices((x, np.sin(x.sum(axis=1, keepdims=True))))
    return pairs.shuffle(len(x), seed=1).batch(BATCH)


def make_model(units: int = 8) -> Averaged:
    layers = tf.keras.layers
    model = Averaged(
        [
            layers.Dense(units, input_shape=(6,)),
            layers.BatchNormalization(),
            *([layers.Dense(units)] if units > 8 else []),
            layers.Dense(1),
        ]
    )
    return model


def keras(units: int = 8, snapshot_steps: int | None = 5) -> Averaged:
    model = make_model(units)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01))
    model.compile(optimizer, "mse", metrics=["mae"])
    callbacks = [
        StepEnds(),
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.FaultTolerance(snapshot_steps),
        hvd.callbacks.MetricAverageCallback(),
    ]
    model.fit(data(), epochs=EPOCHS, callbacks=callbacks, verbose=0)
    return model


# 4 MB a snapshot: copied while the next step runs. When they are taken changes no weight, and the
# ranks need not agree: rank 0 has a fixed number of steps, the others choose.
def large() -> Averaged:
    return keras(600, 4 if hvd.rank() == 0 else None)


STYLES = {"keras": keras, "large": large}


def main() -> None:
    tf.keras.utils.set_random_seed(1 + int(os.environ["HOROVOD_RANK"]))
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd.init()
    hvd_tf.broadcast_object({"of": hvd.rank()}, 0)
    model = STYLES[sys.argv[1]]()
    total = hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="end")
    assert total == hvd.size()
    trained = {id(v): v for v in model.trainable_variables}.values()
    weights = b"".join(v.numpy().tobytes() for v in trained)
    kept = b"".join(v.numpy().tobytes() for v in model.non_trainable_variables)
    kept += b"".join(average.tobytes() for average in model.averages())  # begun before a broadcast
    digests = [hashlib.sha256(part).hexdigest()[:16] for part in (weights, kept)]
    # One write, or the ranks' lines mix.
    sys.stdout.write(f"RESULT {hvd.rank()} {hvd.incarnation()} {' '.join(digests)}\n")


main()
