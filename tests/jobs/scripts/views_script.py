"""Holds results of allreduces over snapshots, and uses them; prints a digest of the weights.

All that was reduced goes into these. Says on rank 0 how many of the results lay in the log.
"""

import hashlib
from pathlib import Path

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

STEPS = 12
ELEMENTS = 200_003  # no multiple of a page, nor of a cache line

hvd.init()
rank, size = hvd.rank(), hvd.size()
log = [
    tuple(int(end, 16) for end in line.split()[0].split("-"))
    for line in Path("/proc/self/maps").read_text().splitlines()
    if line.rstrip().endswith("/node.arena") and line.split()[1] == "r--s"
]
weights = tf.Variable(tf.zeros([ELEMENTS]))
other = tf.Variable(tf.zeros([ELEMENTS]))
state = hvd.State(variables=[weights, other], snapshot_steps=2)
state.sync()
held: list[tuple[tf.Tensor, np.ndarray]] = []
viewed = 0


def keep(result: tf.Tensor) -> None:
    """Holds it, and a copy of what it is now."""
    global viewed
    array = np.frombuffer(memoryview(result), result.dtype.as_numpy_dtype)
    address = array.__array_interface__["data"][0]
    viewed += any(begin <= address < end for begin, end in log)
    held.append((result, array.copy()))
    part = weights[: result.shape[0]]
    part.assign(part + tf.tanh(tf.cast(result, tf.float32)))


@tf.function
def in_a_function(given: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(hvd.allreduce(given, op=hvd.Sum, name="inside") * 2.0)


@tf.function
def in_place(given: tf.Tensor) -> tf.Tensor:
    # Unshared slices of results, from cache line to cache line, so that TensorFlow does not copy
    # them: kernels compute in place where they can.
    lines = given[: ELEMENTS // 32 * 32]
    first, rest = tf.split(hvd.allreduce(lines, op=hvd.Sum, name="split"), 2)
    part = hvd.allreduce(lines, op=hvd.Average, name="slice")[64:]
    return tf.concat([tf.nn.relu(first), tf.exp(-tf.abs(rest)), tf.exp(-tf.abs(part))[:3]], 0)


def given(number: int, dtype: str) -> tf.Tensor:
    values = np.random.default_rng([number, rank]).standard_normal(ELEMENTS) * 100
    return tf.constant(values.astype(dtype))


while state.batch < STEPS:
    step = state.batch
    keep(hvd.allreduce(given(step, "float32"), op=hvd.Average, name="average"))
    keep(hvd.allreduce(given(step, "float64"), op=hvd.Sum, postscale_factor=0.3, name="scaled"))
    for dtype, op in (("float16", hvd.Average), ("int32", hvd.Sum), ("int64", hvd.Max)):
        keep(hvd.allreduce(given(step, dtype), op=op, name=dtype))
    parts = hvd.grouped_allreduce([given(step, "float32"), weights[:5], weights], op=hvd.Average)
    for part in parts:
        keep(part)
    weights.assign_add(tf.tanh(in_a_function(given(step, "float32"))))
    weights.assign_add(in_place(given(step, "float32")))
    other.assign(held[-8][0])  # which may not become the variable's own memory
    other.assign_add(weights)
    weights.assign_add(tf.tanh(other))
    if step % 3 == 2:
        held = held[::4]  # so some go, others stay over many snapshots
    state.batch += 1
    state.commit()
state.finish()
hvd.shutdown()

for result, before in held:
    np.testing.assert_array_equal(result.numpy(), before)
print(f"rank {rank}: {hashlib.sha256(weights.numpy().tobytes()).hexdigest()}", flush=True)
if rank == 0:
    print(f"{viewed} viewed", flush=True)
