"""Waits for warm spares, and does to them and to those above them what its argument says.

Neither it nor its spares need TensorFlow: `without_tensorflow` is to be in PYTHONPATH.
"""

import os
import signal
import sys
from pathlib import Path

import psutil

from hvd_ft import native
from hvd_ft.native import abi
from hvd_ft.system.await_file import await_file
from hvd_ft.worker.exit_reason import keep_last_words

JOB, DIRECTORY = os.environ["HOROVOD_FT_JOB"], Path(os.environ["HOROVOD_FT_DIR"])
WHAT = sys.argv[1]
SPARE = "preparing-" if "SPARES_NEVER_READY" in os.environ else "ready-"


def await_spare(number: int) -> None:
    """Waits until the job's spare of that number is there."""
    if not await_file(DIRECTORY / f"{SPARE}{number}", 60):
        os._exit(9)


def kill_waiting_spare() -> None:
    for process in psutil.process_iter():
        try:
            is_spare = "hvd_ft.spares.spare" in process.cmdline()
            if is_spare and process.environ()["HOROVOD_FT_JOB"] == JOB:
                process.kill()
        except (psutil.Error, KeyError):
            continue


def end(code: int = 0) -> None:
    worker.orderly_exit()
    os.write(1, f"END {worker.rank} {worker.incarnation}\n".encode())  # in one piece
    sys.exit(code)


def end_with_rank_1() -> None:
    view, seen = native.Observer(str(DIRECTORY)), 0
    while view.status(1).state is not native.State.DONE:
        worker.wait_event(seen, 60_000)
        seen = worker.event_count
    end()


def end_the_job() -> None:
    """Rank 0's part: it has the spare manager."""
    await_spare(1)
    shim, agent, *above = psutil.Process().parents()
    launcher = psutil.Process(int(os.environ["LAUNCHER"]))
    mpirun = next(process for process in above if process.name() == "mpiexec.hydra")
    if WHAT == "ctrl-c" or worker.incarnation > 0:  # another shim has had a spare prepared
        launcher.send_signal(signal.SIGINT)
    else:
        {"launcher": launcher, "mpirun": mpirun, "agent": agent, "shim": shim}[WHAT].kill()
    signal.pause()


def first_life() -> None:
    """Rank 1 dies when a spare is there."""
    await_spare(1)
    if WHAT == "waiting":
        kill_waiting_spare()
        await_spare(2)
        raise RuntimeError("boom")
    os.kill(os.getpid(), signal.SIGKILL)


def second_life() -> None:
    """Rank 1 is a spare that has been taken."""
    if WHAT == "waiting":
        end(5)
    if WHAT == "again":
        raise RuntimeError("boom")
    spare_shim, manager, *_ = psutil.Process().parents()
    {"spare-shim": spare_shim, "manager": manager}[WHAT].kill()
    signal.pause()


keep_last_words()
worker = native.worker()
assert worker is not None
abi.library().hvdft_worker_caught_up()
if WHAT in ("ctrl-c", "launcher", "mpirun", "agent", "shim"):
    end_the_job() if worker.rank == 0 else signal.pause()
elif worker.rank == 0:
    end_with_rank_1()
elif worker.incarnation == 0:
    first_life()
elif worker.incarnation == 1:
    second_life()
else:
    end()
