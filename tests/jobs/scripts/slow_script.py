"""Trains in even steps, so that a rank is slow only by a drill; ends when the report says who is.

With --record it writes what a slow watch sees of the job, once a second (tests/agent/slow_series).
"""

import argparse
import json
import os
import threading
import time
from dataclasses import astuple
from pathlib import Path

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft.native import Observer


def record(path: str) -> None:
    """Writes a line a second: the time, and of each rank state, incarnation, step and times."""
    observer = Observer(os.environ["HOROVOD_FT_DIR"])
    with open(path, "a", encoding="ascii", buffering=1) as file:
        while True:
            ranks = []
            for rank in range(observer.size):
                of = observer.status(rank)
                times = astuple(observer.times(rank))
                ranks.append([of.state, of.incarnation, of.step, *times])
            file.write(json.dumps([round(time.monotonic(), 2), *ranks]) + "\n")
            time.sleep(1)


def compute(ms: float, cpu: bool) -> None:
    """Computes for this long, on a CPU or without one."""
    if not cpu:
        time.sleep(ms / 1000)
        return
    block = np.ones([200, 200])
    for _ in range(round(ms * 2)):  # about half a millisecond each
        block = block @ block / 200


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", help="a report; ends when it names a slow rank")
    parser.add_argument("--steps", type=int, required=True, help="at most")
    parser.add_argument("--ms", type=float, default=40)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--record")
    parser.add_argument("--evaluate", type=float, help="seconds, of rank 0 every 100 steps")
    parser.add_argument("--turns", action="store_true", help="each step another rank is slow")
    options = parser.parse_args()
    hvd.init()
    if options.record and hvd.rank() == 0:
        threading.Thread(target=record, args=(options.record,), daemon=True).start()
    state = hvd.State(variables=[tf.Variable(tf.zeros([1000]))])
    state.sync()
    while state.batch < options.steps:
        slow = options.turns and state.batch % hvd.size() == hvd.rank()
        compute(options.ms * (2 if slow else 1), options.cpu)
        named = bool(options.until) and '"SLOW"' in Path(options.until).read_text()
        over = hvd.allreduce(tf.constant(float(named)), name="over", op=hvd.Max)
        hvd.allreduce(tf.ones([50_000]), name="gradient")
        if options.evaluate and state.batch % 100 == 99 and hvd.rank() == 0:
            time.sleep(options.evaluate)
        state.batch += 1
        state.commit()
        if over > 0:
            break


if __name__ == "__main__":
    main()
