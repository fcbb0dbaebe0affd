"""examples/digits_keras.py, which reports the time of each step and dies when ordered to."""

import argparse
import os
import signal
import time
from pathlib import Path
from typing import Any

from tensorflow import keras

from examples.digits_keras import main
from hvd_ft.system.await_file import await_file

SPARE_SECONDS = 60  # for it to import TensorFlow


class Times(keras.callbacks.Callback):
    """Writes a line for each step: its number and when it was done (CLOCK_MONOTONIC, ns).

    Args:
        folder: takes a file from every rank.
        die_step: at whose end this process kills itself; 0 for never.
        spare: socket of the spare that it waits for first, or None.
    """

    def __init__(self, folder: Path, die_step: int, spare: Path | None) -> None:
        super().__init__()
        self.step = 0  # a restarted process has it from its snapshot
        rank = os.environ.get("HOROVOD_RANK", "0")
        self._file = (folder / rank).open("a", buffering=1)
        self._die_step = die_step
        self._spare = spare

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.step += 1
        self._file.write(f"step {self.step} {time.monotonic_ns()}\n")
        if self.step == self._die_step:
            if self._spare and not await_file(self._spare, SPARE_SECONDS):
                raise RuntimeError("there is no spare")
            # Until the others wait for this rank and nothing else happens, which no event reports.
            time.sleep(0.5)
            self._file.write(f"killed {self.step} {time.monotonic_ns()}\n")
            os.kill(os.getpid(), signal.SIGKILL)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--times", type=Path, required=True)
parser.add_argument("--die-rank", default="none")
parser.add_argument("--die-step", type=int, default=0)
parser.add_argument("--await-spare", action="store_true")
parser.add_argument("--epochs", default="4")
options = parser.parse_args()
first = os.environ.get("HOROVOD_FT_INCARNATION") == "0"
dies = first and os.environ["HOROVOD_RANK"] == options.die_rank
spare = Path(os.environ["HOROVOD_FT_DIR"], "ready-1") if dies and options.await_spare else None
main(
    ["--epochs", options.epochs],
    [Times(options.times, options.die_step if dies else 0, spare)],
)
