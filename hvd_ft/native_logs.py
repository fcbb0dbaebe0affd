"""The logs of pairs in the core, seen from Python: messages between workers.

The meaning of every name is told in ``core/hvdft_messages.h``. Like ``native.py``, and beside it
the only file that knows of the core's ctypes.
"""

import ctypes
import zlib
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hvd_ft import native
from hvd_ft.errors import HvdFtError

_AGAIN = -1


class _Message(ctypes.Structure):
    _fields_ = (("number", c_uint64), ("bytes", c_uint64), ("form", c_char_p))


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "hvdft_error": (c_char_p, []),
    "hvdft_worker_send": (c_int, [c_int, c_int32, c_char_p, c_uint32, c_void_p, c_uint64]),
    "hvdft_worker_await_message": (c_int, [c_int, c_int32, c_int, POINTER(_Message)]),
    "hvdft_worker_take_message": (c_int, [c_int, POINTER(_Message), c_void_p]),
}


@dataclass(frozen=True)
class Message:
    """A message that has come.

    Attributes:
        number: in the log of its pair of ranks.
        bytes: of its data.
        form: type and shape, as the sender told them.
    """

    number: int
    bytes: int
    form: str


@cache
def _library() -> ctypes.CDLL:
    return native.load(native.library_path(), _SIGNATURES, "build it with 'make core'")


def _checked(code: int) -> int:
    if code < 0:
        raise HvdFtError(_library().hvdft_error().decode(errors="replace"))
    return code


def send(dest: int, tag: int, form: str, data: np.ndarray) -> bool:
    """Sends a contiguous array's bytes; False if an earlier incarnation has sent the message."""
    checksum = zlib.crc32(data.reshape(-1).view(np.uint8).data)
    code = _library().hvdft_worker_send(
        dest, tag, form.encode(), checksum, data.ctypes.data, data.nbytes
    )
    return bool(_checked(code))


def await_message(source: int, tag: int, timeout_ms: int) -> Message | None:
    """Waits for what the next receive gets; None if it does not come within the time."""
    out = _Message()
    code = _library().hvdft_worker_await_message(source, tag, timeout_ms, byref(out))
    if code == _AGAIN:
        return None
    _checked(code)
    return Message(out.number, out.bytes, out.form.decode())


def take_message(source: int, message: Message, to: np.ndarray) -> None:
    """Receives a message into a contiguous array of its size."""
    which = _Message(message.number)
    _checked(_library().hvdft_worker_take_message(source, byref(which), to.ctypes.data))
