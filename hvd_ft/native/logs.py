"""The logs that two have together, seen from Python: messages between workers, and a look at logs.

The meaning of every name is told in ``include/hvd_ft_logs.h``. numpy is imported only
where there are arrays: agents look at logs, and shall stay small.
"""

import ctypes
import zlib
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hvd_ft import native
from hvd_ft.native import abi

if TYPE_CHECKING:
    import numpy as np

_AGAIN = -1


class _Message(ctypes.Structure):
    _fields_ = (("number", c_uint64), ("bytes", c_uint64), ("form", c_char_p))


class _RingEnd(ctypes.Structure):
    _fields_ = (
        ("op", c_uint64),
        ("position", c_uint64),
        ("known", c_int32),
        ("allgather", c_int32),
        ("step", c_uint64),
        ("segment", c_uint64),
    )


class _Pair(ctypes.Structure):
    _fields_ = (
        ("sent", c_uint64),
        ("received", c_uint64),
        ("decided_before", c_uint64),
        ("memory_bytes", c_uint64),
    )


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "hvdft_worker_send": (c_int, [c_int, c_int32, c_char_p, c_uint32, c_void_p, c_uint64]),
    "hvdft_worker_await_message": (c_int, [c_int, c_int32, c_int, POINTER(_Message)]),
    "hvdft_worker_take_message": (c_int, [c_int, POINTER(_Message), c_void_p]),
    "hvdft_observer_ring_end": (c_int, [c_void_p, c_int, c_int, POINTER(_RingEnd)]),
    "hvdft_observer_pair": (c_int, [c_void_p, c_int, c_int, POINTER(_Pair)]),
    "hvdft_observer_op": (c_int, [c_void_p, c_uint64, c_char_p, c_int]),
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
    return abi.load(abi.library_path(), _SIGNATURES, "build it with 'make core'")


def send(dest: int, tag: int, form: str, data: "np.ndarray") -> bool:
    """Sends a contiguous array's bytes; False if an earlier incarnation has sent the message."""
    import numpy as np

    checksum = zlib.crc32(data.reshape(-1).view(np.uint8).data)
    code = _library().hvdft_worker_send(
        dest, tag, form.encode(), checksum, data.ctypes.data, data.nbytes
    )
    return bool(abi.checked(code))


def await_message(source: int, tag: int, timeout_ms: int) -> Message | None:
    """Waits for what the next receive gets; None if it does not come within the time."""
    out = _Message()
    code = _library().hvdft_worker_await_message(source, tag, timeout_ms, byref(out))
    if code == _AGAIN:
        return None
    abi.checked(code)
    return Message(out.number, out.bytes, out.form.decode())


def take_message(source: int, message: Message, to: "np.ndarray") -> None:
    """Receives a message into a contiguous array of its size."""
    which = _Message(message.number)
    abi.checked(_library().hvdft_worker_take_message(source, byref(which), to.ctypes.data))


@dataclass(frozen=True)
class EdgeEnd:
    """How far an edge of the ring between nodes has come, as one of its ends has noted it.

    Attributes:
        op: all ops before it are through.
        position: of this op, so many segments.
        place: the same as phase, step and segment; None when the log does not have the op.
    """

    op: int
    position: int
    place: tuple[str, int, int] | None

    def __str__(self) -> str:
        if self.position == 0:
            return f"op {self.op}, its beginning"
        if self.place is None:
            return f"op {self.op}, position {self.position}"
        phase, step, segment = self.place
        return f"op {self.op}, {phase} step {step} segment {segment}"


@dataclass(frozen=True)
class PairOfRanks:
    """The log of the messages from one rank to another.

    Attributes:
        source: rank that sends.
        dest: rank that receives.
        sent: messages.
        received: messages.
        decided_before: so many messages, from the first on, are dropped, or kept for the whole job.
        memory_bytes: that the log takes on this node.
    """

    source: int
    dest: int
    sent: int
    received: int
    decided_before: int
    memory_bytes: int


def ring_end(observer: native.Observer, rank: int, *, sent: bool) -> EdgeEnd | None:
    """What the node whose first rank this is has sent or received; None if it is no such rank."""
    out = _RingEnd()
    if not abi.checked(_library().hvdft_observer_ring_end(observer.handle, rank, sent, byref(out))):
        return None
    phase = "ALLGATHER" if out.allgather else "REDUCE_SCATTER"
    place = (phase, int(out.step), int(out.segment)) if out.known else None
    return EdgeEnd(out.op, out.position, place)


def pair_of_ranks(observer: native.Observer, source: int, dest: int) -> PairOfRanks | None:
    """The log of the messages from one rank to another; None if there is none."""
    out = _Pair()
    if not abi.checked(_library().hvdft_observer_pair(observer.handle, source, dest, byref(out))):
        return None
    return PairOfRanks(source, dest, out.sent, out.received, out.decided_before, out.memory_bytes)


def signature(observer: native.Observer, op: int) -> str | None:
    """What was agreed about an op; None if the log does not have it any more."""
    text = ctypes.create_string_buffer(4096)
    if not _library().hvdft_observer_op(observer.handle, op, text, len(text)):
        return None
    return text.value.decode(errors="replace")
