"""Damages a file of the job as soon as rank 1 has died, then runs a script: DAMAGE SCRIPT ARGUMENT…

DAMAGE is `flip` or `truncate`, then a file of the rank's host, and where it ends or what is flipped
there: `head`, the `text` that is named, what is `behind` some bytes, a bit in each page, or, in the
same way, the `newest` snapshot of loop 0. With a fourth word, `agent`, the rank's agent is killed
too.
"""

import os
import runpy
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from hvd_ft.native.checkpointer import Checkpointer

HEADER, WINDOW = 4096, 1 << 20  # of a rank's file; its snapshots are between them, …
MAX_LOOPS = 1 << 15  # … two for each loop (csrc/arena/layout.h)


def flip(file: int, at: int) -> None:
    os.pwrite(file, bytes([os.pread(file, 1, at)[0] ^ 16]), at)


def pages(file: int, behind: int) -> Iterator[int]:
    """Yields where the pages are that have memory."""
    end = os.fstat(file).st_size
    while behind < end:
        try:
            behind = os.lseek(file, behind, os.SEEK_DATA)
        except OSError:
            return
        yield behind
        behind = (behind // 4096 + 1) * 4096


def newest(file: int) -> Iterator[int]:
    """Yields where the pages of rank 1's newest snapshot in loop 0 are."""
    native = Checkpointer(os.environ["HOROVOD_FT_DIR"], os.environ["HOROVOD_FT_JOB"])
    slot, snapshot = max(native.slots(1, 0), key=lambda found: found[1].cut)
    native.close()
    slots = os.fstat(file).st_size - HEADER - WINDOW
    begin = HEADER + slot * (slots // (2 * MAX_LOOPS))
    yield from range(begin, begin + snapshot.bytes, 4096)


def damage(how: str, name: str, what: str, kill: str = "") -> None:
    path = Path(os.environ["HOROVOD_FT_DIR"]) / name
    if how == "truncate":
        os.truncate(path, path.stat().st_size - 1 if what == "end" else int(what))
        return
    file = os.open(path, os.O_RDWR)
    kind, _, rest = what.partition(":")
    if kind == "head":
        flip(file, 70)
    elif kind == "behind":
        for page in pages(file, int(rest)):
            flip(file, page + 100)
    elif kind == "newest":
        for page in newest(file):
            flip(file, page + 100)
    else:
        for page in pages(file, 0):
            found = os.pread(file, 4096, page).find(rest.encode())
            if found >= 0:
                flip(file, page + found)
    if kill == "agent":
        shim = psutil.Process(os.getppid())
        os.kill(shim.ppid(), signal.SIGKILL)
        signal.pause()


if os.environ["HOROVOD_RANK"] == "1" and os.environ["HOROVOD_FT_INCARNATION"] == "1":
    damage(*sys.argv[1].split())
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
