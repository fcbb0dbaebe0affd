"""A job that a tool starts and drives: the job's workers connect to a socket of the tool."""

import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from hvd_ft.errors import HvdFtError
from hvd_ft.native.core import die_with_parent


def listen_at(listener: socket.socket, address: str, workers: int) -> None:
    """Makes a Unix socket listen for a job's workers.

    Args:
        listener: The socket.
        address: Its path, in a private directory.
        workers: The number of workers that connect at once.

    Raises:
        HvdFtError: The path is too long for a socket.
    """
    try:
        listener.bind(address)
    except OSError as error:
        raise HvdFtError(
            f"cannot make the socket {address} ({error}); set TMPDIR to a short path"
        ) from None
    listener.listen(workers)


def start_job(
    command: Sequence[str], environment: Mapping[str, str], log: BinaryIO
) -> "subprocess.Popen[bytes]":
    """Starts a job that ends with this process.

    Args:
        command: Its command line.
        environment: Its whole environment.
        log: The file that receives its output.
    """
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C reaches this process, which ends the job in order
        preexec_fn=die_with_parent,  # noqa: PLW1509  (there is no other thread here)
    )
