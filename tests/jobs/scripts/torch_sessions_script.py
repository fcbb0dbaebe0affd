"""Ends Horovod and initialises it again, with no op between; one rank is always a session behind.

Args:
    folder: where rank 1 says how far it is.
    sessions: how many have an op at their end.
"""

import sys
import time
from pathlib import Path

import torch

import hvd_ft.torch as hvd

FOLDER, SESSIONS = Path(sys.argv[1]), int(sys.argv[2])


def main() -> None:
    total = 0.0
    for session in range(SESSIONS):
        hvd.init()  # a session without an op
        rank, begun = hvd.rank(), FOLDER / str(session)
        if rank == 0:
            while not begun.exists():  # rank 1 has handed over a tensor in its next session
                time.sleep(0.001)
        hvd.shutdown()
        hvd.init()
        handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="ones")
        if rank == 1:
            begun.touch()
        total += float(hvd.synchronize(handle).sum())
        hvd.shutdown()
    print("RESULT", rank, total, flush=True)


if __name__ == "__main__":
    main()
