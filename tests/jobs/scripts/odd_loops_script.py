"""Training loops of unusual shapes, with snapshots large enough to be shared.

The argument says which; whole numbers are trained, so their sums can be worked out.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

import hvd_ft.tensorflow as hvd

kind, meeting = sys.argv[1], Path(sys.argv[2])
pair = hvd.ProcessSet([0, 2])
hvd.init(process_sets=[pair])
rank = hvd.rank()
weights = tf.Variable(tf.range(800_000, dtype=tf.float32) % 100)
private = tf.Variable(tf.zeros([800_000]))


def gradient(step: int) -> tf.Tensor:
    return (3 * weights + rank + step) % 17


def train(step: int, **of: Any) -> None:
    weights.assign(hvd.allreduce(gradient(step), op=hvd.Sum, **of))


def loop(steps: int, **settings: Any) -> Iterator[int]:
    """Yields the numbers of the steps that are left, each of which ends with a commit."""
    settings = settings or {"snapshot_overhead": 0.5}
    state = hvd.State(variables=[weights, private], **settings)
    state.sync()
    while state.batch < steps:
        yield state.batch
        state.batch += 1
        state.commit()
    state.finish()


def short() -> None:
    """Many loops, each of few steps or none."""
    for number in range(10):
        for step in loop(number % 4):
            train(step)


def many() -> None:
    """One loop an epoch, as scripts have it that validate in between; killed early and late."""
    incarnation = int(os.environ["HOROVOD_FT_INCARNATION"])
    deaths = {(1, 0): 2, (1, 1): 65, (0, 0): 66, (1, 2): 66}  # by rank and incarnation: the loop
    for number in range(70):
        for step in loop(2):
            train(step, name=f"{number}.{step}")
            if step == 1 and deaths.get((rank, incarnation)) == number:
                os.kill(os.getpid(), signal.SIGKILL)


def quiet() -> None:
    """Rank 1 has no collective until the others have done all of theirs."""
    for step in loop(24):
        if rank != 1:
            train(step, process_set=pair, name="of two")
        elif step > 1:
            while not meeting.exists():
                time.sleep(0.01)
    if rank == 0:
        meeting.touch()
    train(0)


def joined() -> None:
    """In each of three rounds one rank has more batches than the others."""
    for turn in loop(3, snapshot_steps=1):
        for step in range(4 + 5 * ((rank + turn) % 3)):
            train(step, name="trained")
        last = int(hvd.join())
        weights.assign(hvd.broadcast(weights, last, name="of the last"))


def joined_steps() -> None:
    """Ranks have different numbers of steps, and join when they have done theirs."""
    for step in loop(6 + 4 * rank):
        train(step, name="trained")
    last = int(hvd.join())
    weights.assign(hvd.broadcast(weights, last, name="of the last"))


def intervals() -> None:
    """Each rank has an interval of its own."""
    for step in loop(26, snapshot_steps=2 + rank):
        train(step)


def changing() -> None:
    """A variable is equal on all ranks, then it is not, then it is again."""
    for step in loop(24, snapshot_steps=2):
        train(step)
        differs = 8 <= step < 16
        private.assign(weights + rank if differs else weights)


globals()[kind]()
total = hvd.allreduce(private, op=hvd.Sum, name="private")
places = tf.range(800_000, dtype=tf.int64) % 997
sums = [int(tf.reduce_sum(tf.cast(x, tf.int64) * places)) for x in (weights, total)]
sys.stdout.write(f"RESULT {rank} {sums[0]} {sums[1]}\n")
