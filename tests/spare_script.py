"""Waits for warm spares, and does to them and to those above them what its argument says."""

import os
import signal
import sys
from pathlib import Path

import psutil
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft.await_file import await_file

JOB, DIRECTORY = os.environ["HOROVOD_FT_JOB"], Path(os.environ["HOROVOD_FT_DIR"])
WHAT = sys.argv[1]


def await_spare(number: int) -> None:
    """Waits until the job's spare of that number is ready."""
    if not await_file(DIRECTORY / f"ready-{number}", 60):
        os._exit(9)


def kill_waiting_spare() -> None:
    for process in psutil.process_iter():
        try:
            is_spare = "hvd_ft.spare" in process.cmdline()
            if is_spare and process.environ()["HOROVOD_FT_JOB"] == JOB:
                process.kill()
        except (psutil.Error, KeyError):
            continue


def main() -> None:
    hvd.init()
    hvd.allreduce(tf.ones([2]), name="first")
    rank, incarnation = hvd.rank(), hvd.incarnation()
    if rank == 1 and incarnation == 0:
        await_spare(1)
        if WHAT == "waiting":
            kill_waiting_spare()
            await_spare(2)
            raise RuntimeError("boom")
        if WHAT == "launcher":
            os.kill(int(os.environ["LAUNCHER"]), signal.SIGKILL)
            signal.pause()
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and incarnation == 1:
        keeper = psutil.Process().parents()[1]
        if WHAT == "waiting":
            sys.exit(5)
        if WHAT == "again":
            raise RuntimeError("boom")
        victim = {"holder": psutil.Process().parent(), "keeper": keeper, "nursery": keeper.parent()}
        victim[WHAT].kill()
        signal.pause()
    total = hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="last")
    sys.stdout.write(f"TOTAL {rank} {incarnation} {float(total)}\n")


main()
