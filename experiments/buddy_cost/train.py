"""Steps of an allreduce and a snapshot, with private state of several sizes that take turns.

Rank 0 prints a line of JSON for each training loop.
"""

import argparse
import json
import os
import time

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft import native
from hvd_ft.worker.training_loop import TrainingLoop

SNAPSHOT_STEPS = 3


def loop_seconds(weights: np.ndarray, private: np.ndarray, steps: int) -> list[float]:
    """Runs a training loop; returns the seconds of its steps, in order.

    Args:
        weights: float32, equal on all ranks: summed in each step, and part of every snapshot.
        private: uint8, of this rank alone: the other part.
        steps: of the loop.
    """
    worker = native.worker()
    assert worker is not None
    loop = TrainingLoop(worker, SNAPSHOT_STEPS, 0.01)
    loop.begin()
    gradient = tf.constant(weights)
    took = []
    for step in range(1, steps + 1):
        begin = time.perf_counter()
        hvd.allreduce(gradient, op=hvd.Sum, name="gradient")
        loop.set_step(step)
        if loop.wants_snapshot(step):
            loop.write(step, lambda: ({"weights": weights, "private": private}, {}))
        took.append(time.perf_counter() - begin)
    loop.end()
    return took


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kib", type=int, nargs="+", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--weights-mb", type=int, default=4)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    weights = np.zeros(options.weights_mb * 250_000, np.float32)
    generator = np.random.default_rng(hvd.rank())
    private = {kib: generator.bytes(kib << 10) for kib in options.kib}
    for turn in range(options.rounds):
        for kib in options.kib if turn % 2 == 0 else reversed(options.kib):
            took = loop_seconds(weights, np.frombuffer(private[kib], np.uint8), options.steps)
            if hvd.rank() == 0:
                line = json.dumps({"round": turn, "kib": kib, "seconds": took})
                os.write(1, f"LOOP {line}\n".encode())


if __name__ == "__main__":
    main()
