"""A rank that asks for no collective while others do, in a set without it, and that dies then.

The argument is a directory in which the ranks meet by files, without a collective.
"""

import os
import signal
import sys
from pathlib import Path

import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft.system.await_file import await_file

FOLDER = Path(sys.argv[1])


def reduce_in(pair: hvd.ProcessSet, name: str) -> None:
    for number in range(5):
        total = hvd.allreduce(tf.range(100.0), name=f"{name}{number}", op=hvd.Sum, process_set=pair)
        assert total[3] == 6, total


def main() -> None:
    pair = hvd.ProcessSet([0, 1])
    hvd.init(process_sets=[pair])
    hvd.allreduce(tf.ones([4]), name="first", op=hvd.Sum)
    if pair.included():
        reduce_in(pair, "before")
        (FOLDER / f"before-{hvd.rank()}").touch()
        assert await_file(FOLDER / "back", 120)
        reduce_in(pair, "after")
        (FOLDER / f"after-{hvd.rank()}").touch()
    else:
        for rank in range(2):
            assert await_file(FOLDER / f"before-{rank}", 120)
        if hvd.incarnation() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        (FOLDER / "back").touch()
        for rank in range(2):
            assert await_file(FOLDER / f"after-{rank}", 120)
    print("END", hvd.rank(), float(hvd.allreduce(tf.ones([1]), name="last", op=hvd.Sum)[0]))


if __name__ == "__main__":
    main()
