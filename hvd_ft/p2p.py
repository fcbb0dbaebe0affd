"""Messages between workers, like MPI's send and receive, that survive the death of either end.

Every message arrives exactly once, whichever processes die in between, because the two ranks keep
it in a log. Until a restarted worker has caught up with its predecessor, its repeated sends are
skipped and its receives are served from the log. Snapshots of a training loop record how many
messages a rank has sent and received.

Needs no TensorFlow, and no Horovod.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.job.settings import Settings
from hvd_ft.native import logs
from hvd_ft.worker.exit_reason import keep_last_words
from hvd_ft.worker.exit_status import prepare_exit
from hvd_ft.worker.mpi4py_guard import guard_mpi4py

_LOOK_MS = 200  # between two checks for signals
_TAGS = range(-(1 << 31), 1 << 31)

keep_last_words()
guard_mpi4py()


def rank() -> int:
    """Returns this worker's rank.

    Raises:
        HvdFtError: there is no agent.
    """
    worker = _worker()
    return worker.present().index(worker.rank)


def size() -> int:
    """Returns the number of ranks.

    Raises:
        HvdFtError: there is no agent.
    """
    return len(_worker().present())


def ft_send(array: Any, dest: int, tag: int = 0) -> None:
    """Sends an array to a rank, without waiting until the rank receives it.

    Args:
        array: a numpy array of numbers or bools, or anything that numpy converts to one.
        dest: the receiving rank.
        tag: selects the message in `ft_recv`; 32 bits.

    Raises:
        HvdFtError: The array cannot be sent or the arena has no room; or a restarted script sends
            something else than before, which stops the job.
    """
    worker = _worker()
    dest, tag = _rank(worker, "dest", dest), _tag(tag)
    data = np.ascontiguousarray(array).reshape(np.shape(array))
    with _stopping(worker):
        logs.send(dest, tag, _form(data), data)


def ft_recv(array: np.ndarray | None, source: int, tag: int = 0) -> np.ndarray:
    """Receives the next message with a tag from a rank.

    Messages with the same tag arrive in the order in which they were sent. The call waits for a
    message at most `HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS`; then the job is stopped.

    Args:
        array: the array to receive into: writeable, contiguous, and with the message's type and
            number of elements. None: a new array like the one that was sent.
        source: the rank that sends it.
        tag: the tag with which it was sent.

    Returns:
        The array.

    Raises:
        HvdFtError: The message does not fit the array, and is not received. Or it does not come in
            time or cannot come any more, or a restarted script receives something else than before;
            each of these stops the job.
    """
    worker = _worker()
    source, tag = _rank(worker, "source", source), _tag(tag)
    if array is not None:
        _check_room(array)
    with _stopping(worker):
        message = _await(worker.rank, source, tag)
    if array is None:
        array = _empty(message.form)
    elif _type_of(message.form) != array.dtype.name or message.bytes != array.nbytes:
        raise HvdFtError(
            f"the message with tag {tag} from rank {source} is {message.form}, which does not go "
            f"into an array of {_form(array)}; give one that fits, or None"
        )
    with _stopping(worker):
        logs.take_message(source, message, array)
    return array


def _await(own: int, source: int, tag: int) -> logs.Message:
    seconds = _timeout_seconds()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        message = logs.await_message(source, tag, min(_LOOK_MS, int(left * 1000) + 1))
        if message is not None:
            return message
    raise HvdFtError(
        f"rank {own} waited {seconds:g} s for a message with tag {tag} from rank {source}: is it "
        "sent, or does each of them wait for the other? If it only takes longer, raise "
        "HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS"
    )


@cache
def _worker() -> native.Worker:
    worker = native.worker()
    if worker is None:
        raise HvdFtError("messages need an agent: start the script with 'hvdft run'")
    prepare_exit(worker)
    return worker


@cache
def _timeout_seconds() -> float:
    return float(Settings.alone(os.environ, "recovery_timeout_seconds"))


@contextlib.contextmanager
def _stopping(worker: native.Worker) -> Iterator[None]:
    """Stops the job on an error in the block, which would recur after a restart."""
    try:
        yield
    except HvdFtError as error:
        worker.fatal(str(error))
        raise


def _rank(worker: native.Worker, name: str, value: int) -> int:
    present = worker.present()
    if not isinstance(value, int | np.integer) or int(value) not in range(len(present)):
        raise HvdFtError(f"{name}={value!r} is not a rank: give one from 0 to {len(present) - 1}")
    return present[int(value)]


def _tag(tag: int) -> int:
    if not isinstance(tag, int | np.integer) or int(tag) not in _TAGS:
        raise HvdFtError(f"tag={tag!r} is not allowed: give a whole number of 32 bits")
    return int(tag)


def _check_type(array: np.ndarray, what: str) -> None:
    """Refuses arrays that are not numeric, or not in this machine's byte order."""
    if array.dtype.kind not in "biufc":
        raise HvdFtError(f"an array of {array.dtype} cannot be {what}: use numbers or bools")
    if not array.dtype.isnative:  # the bytes go as they are, and the type's name is the same
        native = array.dtype.newbyteorder("=")
        raise HvdFtError(
            f"an array of {array.dtype.str} cannot be {what}, whose bytes are in another order "
            f"than this machine's: use an array of {native}, such as array.astype({native.str!r})"
        )


def _check_room(array: np.ndarray) -> None:
    if not isinstance(array, np.ndarray):
        raise HvdFtError(f"a {type(array).__name__} cannot be received into: give a numpy array")
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise HvdFtError("the array to receive into is not contiguous or not writeable: copy it")
    _check_type(array, "received into")


def _form(array: np.ndarray) -> str:
    """Type and shape, such as `float32 [3, 4]`."""
    _check_type(array, "sent")
    return f"{array.dtype.name} {list(array.shape)}"


def _type_of(form: str) -> str:
    return form.partition(" ")[0]


def _empty(form: str) -> np.ndarray:
    shape = [int(number) for number in re.findall(r"\d+", form.partition(" ")[2])]
    return np.empty(shape, np.dtype(_type_of(form)))
