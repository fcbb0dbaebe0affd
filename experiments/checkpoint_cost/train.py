"""The training of experiments/lost_host; rank 0 writes down what the checkpoint writer does."""

import json
import os
from pathlib import Path
from typing import Any

import psutil
import tensorflow as tf

import hvd_ft.tensorflow.keras as hvd
from experiments.lost_host import train
from hvd_ft import native
from hvd_ft.native.types import EventType


class WatchesWriter(tf.keras.callbacks.Callback):
    """Writes down, after each step, the CPU time of the checkpoint writer, and at last the rounds.

    Args:
        path: takes lines of JSON.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._writer: psutil.Process | None = None
        self._cpu: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._writer is None:
            self._writer = writer_process()
        times = self._writer.cpu_times()
        self._cpu.append(times.user + times.system)

    def on_train_end(self, logs: Any = None) -> None:
        worker = native.worker()
        assert worker is not None
        kinds = (EventType.CHECKPOINT, EventType.CHECKPOINTED)
        rounds = [(each.type.name, each.time_ns) for each in worker.events() if each.type in kinds]
        self._path.write_text(json.dumps({"cpu": self._cpu, "rounds": rounds}))


def writer_process() -> psutil.Process:
    """Returns this node's checkpoint writer: a child of the same shim as rank 0's worker."""
    [found] = [
        child
        for child in psutil.Process(os.getppid()).children()
        if "hvd_ft.checkpointer" in child.cmdline()
    ]
    return found


def main() -> None:
    """Trains."""
    parser = train.parser()
    parser.add_argument("--watched", type=Path, required=True)
    options = parser.parse_args()
    hvd.init()
    train.train(options, [WatchesWriter(options.watched)] if hvd.rank() == 0 else [])


if __name__ == "__main__":
    main()
