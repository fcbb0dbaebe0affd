"""The demo's training, in which one rank can kill itself at a given step, once."""

import argparse
import os
import runpy
import signal
from pathlib import Path

import tensorflow as tf

import hvd_ft.tensorflow.keras as hvd

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits_keras.py"


class Death(tf.keras.callbacks.Callback):
    """SIGKILL for this process at the end of a step, in its rank's first life."""

    def __init__(self, rank: int, step: int) -> None:
        super().__init__()
        self._rank = rank
        self._step = step

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        at = int(self.model.optimizer.iterations)
        if hvd.rank() == self._rank and hvd.incarnation() == 0 and at == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Trains; `--die-rank R --die-step S` come on top of the flags of digits_keras.py."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--die-rank", type=int)
    parser.add_argument("--die-step", type=int)
    own, others = parser.parse_known_args()
    extra = [] if own.die_rank is None else [Death(own.die_rank, own.die_step)]
    runpy.run_path(str(EXAMPLE))["main"](others, extra)


if __name__ == "__main__":
    main()
