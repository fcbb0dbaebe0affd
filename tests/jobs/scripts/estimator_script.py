"""Trains in the ways that the first argument names and prints hashes of what each ended with.

`train`: two trainings with an evaluation between them; `evaluate`: train_and_evaluate;
`session`: a monitored session without an Estimator. With a second argument `evaluate` gives every
rank a model directory of its own in there. When so many of PAUSES steps are done, and there is a
file to be waited for, rank 0 tells so on stderr and waits.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft.system.await_file import await_file

v1 = tf.compat.v1
BATCH, STEPS = 4, 24
PAUSES = {8: "AWAIT", 14: "AWAIT_MORE"}


def input_fn() -> tf.data.Dataset:
    random = np.random.default_rng(hvd.rank())
    x = random.standard_normal((40, 6)).astype(np.float32)
    pairs = tf.data.Dataset.from_tensor_slices(({"x": x}, np.sin(x.sum(axis=1, keepdims=True))))
    return pairs.shuffle(40, seed=1).repeat().batch(BATCH)


def eval_input_fn() -> tf.data.Dataset:
    return input_fn().take(5)


def forward(x: tf.Tensor, training: bool) -> tf.Tensor:
    hidden = v1.layers.dense(x, 8)
    hidden = v1.layers.batch_normalization(hidden, training=training)
    hidden = v1.layers.dropout(hidden, 0.2, training=training)
    return v1.layers.dense(hidden, 1)


def train_op(loss: tf.Tensor, passes: int = 1) -> tf.Operation:
    optimizer = hvd.DistributedOptimizer(
        v1.train.AdamOptimizer(0.01), backward_passes_per_step=passes
    )
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        return optimizer.minimize(loss, v1.train.get_or_create_global_step())


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    spec = tf.estimator.EstimatorSpec
    output = forward(features["x"], mode == "train")
    if mode == "infer":
        return spec(mode, predictions={"y": output})
    loss = tf.reduce_mean(tf.square(output - labels))
    if mode == "eval":
        return spec(mode, loss=loss)
    return spec(mode, loss=loss, train_op=train_op(loss))


class Waits(v1.train.SessionRunHook):
    def __init__(self) -> None:
        self.steps = 0

    def after_run(self, _context: Any, _values: Any) -> None:
        self.steps += 1
        awaited = os.environ.get(PAUSES.get(self.steps, "")) if hvd.rank() == 0 else None
        if awaited:
            print(f"waiting for the test after {self.steps} steps", file=sys.stderr, flush=True)
            assert await_file(Path(awaited), 200)


def hooks() -> list[Any]:
    keep = hvd.estimator.FaultTolerance(snapshot_steps=5)
    return [hvd.BroadcastGlobalVariablesHook(0), keep, Waits()]


def estimator(folders: list[str]) -> Any:
    config = tf.estimator.RunConfig(
        tf_random_seed=3 + hvd.rank(),  # other initial values, too
        model_dir=f"{folders[0]}/rank-{hvd.rank()}" if folders else None,
        save_checkpoints_steps=10,
    )
    config = config if folders else hvd.estimator.run_config(config)
    return tf.estimator.Estimator(model_fn, config=config)


def contents(trained: Any) -> dict[str, np.ndarray]:
    return {name: trained.get_variable_value(name) for name in trained.get_variable_names()}


def train() -> tuple[dict[str, np.ndarray], Any]:
    trained, kept = estimator([]), hooks()
    trained.train(input_fn, kept, steps=STEPS)
    first = trained.evaluate(eval_input_fn)
    assert first["global_step"] == STEPS, first
    trained.train(input_fn, kept, max_steps=STEPS + 12)
    second = trained.evaluate(eval_input_fn)
    predicted = [float(p["y"][0]) for p in trained.predict(eval_input_fn)]
    return contents(trained), [float(first["loss"]), float(second["loss"]), sum(predicted)]


def evaluate() -> tuple[dict[str, np.ndarray], Any]:
    trained = estimator(sys.argv[2:])
    result, _ = tf.estimator.train_and_evaluate(
        trained,
        tf.estimator.TrainSpec(input_fn, max_steps=STEPS, hooks=hooks()),
        tf.estimator.EvalSpec(eval_input_fn, steps=None, throttle_secs=0),
    )
    return contents(trained), [float(result["loss"]), int(result["global_step"])]


def session() -> tuple[dict[str, np.ndarray], Any]:
    with tf.Graph().as_default():
        v1.set_random_seed(3 + hvd.rank())
        features, labels = v1.data.make_one_shot_iterator(input_fn()).get_next()
        loss = tf.reduce_mean(tf.square(forward(features["x"], True) - labels))
        step = train_op(loss, passes=3)  # snapshots come in the middle of a sum
        stop = v1.train.StopAtStepHook(last_step=STEPS)
        variables = v1.global_variables()
        values: list[np.ndarray] = []

        class Read(v1.train.SessionRunHook):
            def end(self, session: Any) -> None:
                values.extend(session.run(variables))

        with v1.train.MonitoredTrainingSession(hooks=[*hooks(), stop, Read()]) as running:
            while not running.should_stop():
                running.run(step)
    return {v.name: value for v, value in zip(variables, values, strict=True)}, []


STYLES = {"train": train, "evaluate": evaluate, "session": session}


def main() -> None:
    v1.logging.set_verbosity(v1.logging.ERROR)
    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.keras.utils.set_random_seed(1 + int(os.environ["HOROVOD_RANK"]))
    hvd.init()
    for style in sys.argv[1].split(","):
        values, results = STYLES[style]()
        own = [name for name in values if "moving" in name]  # batch statistics: each rank's own
        parts = [
            b"".join(values[name].tobytes() for name in sorted(values) if (name in own) == kept)
            for kept in (False, True)
        ]
        digests = [hashlib.sha256(part).hexdigest()[:16] for part in parts]
        # One write, or the ranks' lines mix.
        facts = [style, hvd.rank(), *digests, json.dumps(results).replace(" ", "")]
        sys.stdout.write(" ".join(map(str, ["RESULT", *facts])) + "\n")
        sys.stdout.flush()
    hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="end")


main()
