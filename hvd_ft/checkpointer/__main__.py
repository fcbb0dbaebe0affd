"""Runs a checkpoint writer; the shim of a node's first rank starts it."""

import argparse
import contextlib
import os
import signal
import sys
from pathlib import Path

import psutil

from hvd_ft.checkpointer.origin import Origin
from hvd_ft.checkpointer.writer import Writer
from hvd_ft.errors import HvdFtError
from hvd_ft.job.settings import Settings
from hvd_ft.native.checkpointer import Checkpointer
from hvd_ft.system.say import say

_NICE = 10  # the training comes first


def main() -> None:
    """Writes checkpoints until END_SIGNAL."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the agents decide what these mean
        signal.signal(number, signal.SIG_IGN)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arenas", help="directory of the node's arenas")
    parser.add_argument("job")
    parser.add_argument("--run", required=True)
    parser.add_argument("--begun", type=int, required=True)
    parser.add_argument("--group", type=int, nargs="+", required=True)
    parser.add_argument("--base")
    options = parser.parse_args()
    os.umask(0o077)
    os.nice(_NICE)
    with contextlib.suppress(psutil.Error, OSError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_BE, 7)
    try:
        settings = Settings.from_env(os.environ)
        assert settings.checkpoint_dir is not None
        native = Checkpointer(options.arenas, options.job)
        origin = Origin(
            Path(settings.checkpoint_dir),
            options.job,
            options.run,
            options.begun,
            native.place,
            options.group,
        )
        Writer(native, origin, settings, options.base).run()
    except HvdFtError as error:
        say(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
