"""What every rank of the locality experiment does in a job of Horovod: time `hvd.allreduce`.

Started by run.py through `hvdft run`, where the members of the ring are the nodes, or through
mpirun with stock Horovod. Rank 0 prints the lines that times.py prints.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from experiments.locality.times import job_seconds, share, timed, wanted_result

WARM_UPS = 2


def over_all(value: float, op: Any) -> float:
    """Returns the sum, or the maximum, of what each rank has."""
    return float(hvd.allreduce(tf.constant(value, tf.float64), op=op))


def row_of_allreduces(size: int, in_a_row: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a step that reduces a tensor of so many elements, its result again, and so on."""

    @tf.function(input_signature=[tf.TensorSpec([size], tf.float32)])
    def step(array: tf.Tensor) -> tf.Tensor:
        for i in range(in_a_row):
            array = hvd.allreduce(array, op=hvd.Sum, name=f"x{size}.{i}")
        return array

    made: Callable[[tf.Tensor], tf.Tensor] = step
    return made


def measure(
    pattern: np.ndarray, step: Callable[[tf.Tensor], tf.Tensor], in_a_row: int
) -> dict[str, Any]:
    """Times a step; returns the share of one allreduce."""
    array = tf.constant(pattern + np.float32(hvd.rank()))
    results = []
    times = timed(
        lambda: results.append(step(array)),
        barrier=lambda: over_all(0, hvd.Sum),
        used=job_seconds,
        total=lambda value: over_all(value, hvd.Sum),
        most=lambda value: over_all(value, hvd.Max),
    )
    wanted = wanted_result(pattern, hvd.size(), in_a_row)
    wrong = over_all(float(not np.array_equal(results[0].numpy(), wanted)), hvd.Sum)
    return share(in_a_row, *times) | {"wrong": int(wrong)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", required=True, help="what it is called")
    parser.add_argument("--bytes", required=True, help="a list")
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--in-a-row", type=int, default=1, help="allreduces of a repeat")
    options = parser.parse_args()
    hvd.init()
    state = hvd.State(snapshot_steps=1)
    state.sync()
    for size in map(int, options.bytes.split(",")):
        pattern = np.resize(np.arange(7, dtype=np.float32), size // 4)
        step = row_of_allreduces(len(pattern), options.in_a_row)
        for repeat in range(-WARM_UPS, options.repeats):
            row = {"side": options.side, "bytes": size, "repeat": repeat}
            row |= measure(pattern, step, options.in_a_row)
            state.commit()  # as in a training: the log begins anew, in the memory that it has
            if hvd.rank() == 0 and repeat >= 0:
                print(json.dumps(row), flush=True)
    state.finish()


if __name__ == "__main__":
    main()
