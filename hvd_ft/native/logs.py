"""Pair logs and the op log seen from Python: messages between workers, and reading the logs.

``include/hvd_ft_logs.h`` documents every name. numpy is imported only where there are arrays:
agents read logs, and should stay small.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hvd_ft import native
from hvd_ft.native import abi
from hvd_ft.native.abi import ffi

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Message:
    """A message that has arrived.

    Attributes:
        number: in the log of its pair of ranks.
        bytes: of its data.
        form: type and shape, as the sender gave them.
    """

    number: int
    bytes: int
    form: str


def _address(array: "np.ndarray") -> object:
    return ffi.cast("void *", array.ctypes.data)


def send(dest: int, tag: int, form: str, data: "np.ndarray") -> bool:
    """Sends a contiguous array's bytes; False if an earlier incarnation has sent the message."""
    code = abi.library().hvdft_worker_send(dest, tag, form.encode(), _address(data), data.nbytes)
    return bool(abi.checked(code))


def await_message(source: int, tag: int, timeout_ms: int) -> Message | None:
    """Waits for the message of the next receive; None if it does not arrive in time."""
    out = ffi.new("hvdft_message *")
    code = abi.library().hvdft_worker_await_message(source, tag, timeout_ms, out)
    if code == abi.constant("HVDFT_AGAIN"):
        return None
    abi.checked(code)
    return Message(out.number, out.bytes, abi.text(out.form))


def take_message(source: int, message: Message, to: "np.ndarray") -> None:
    """Receives a message into a contiguous array of its size."""
    which = ffi.new("hvdft_message *", {"number": message.number})
    abi.checked(abi.library().hvdft_worker_take_message(source, which, _address(to)))


_PHASES = ("REDUCE_SCATTER", "ALLGATHER", "GATHER")  # HVDFT_PHASE_*


@dataclass(frozen=True)
class EdgeEnd:
    """The progress of a node at its ends of the edges between nodes.

    Attributes:
        op: all ops before it are through.
        position: number of segments of this op, or rounds if it is gathered, that are through.
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
        if phase == "GATHER":
            return f"op {self.op}, {phase} round {step}"
        return f"op {self.op}, {phase} step {step} segment {segment}"


@dataclass(frozen=True)
class PairOfRanks:
    """The log of the messages from one rank to another.

    Attributes:
        source: rank that sends.
        dest: rank that receives.
        sent: messages.
        received: messages.
        decided_before: messages before this one are dropped, or kept for the whole job.
        memory_bytes: of the log, on this node.
    """

    source: int
    dest: int
    sent: int
    received: int
    decided_before: int
    memory_bytes: int


@dataclass(frozen=True)
class Traffic:
    """What the leader of a node has done so far; 0 in a job of one node.

    Attributes:
        sent_messages: to other nodes, by this generation of agents.
        sent_bytes: likewise.
        data_messages: of these, with ops' data, over the ring or gathered.
        data_bytes: likewise.
        naps: of its threads.
        looks: at a rank's state, for one of the mirror's links.
    """

    sent_messages: int
    sent_bytes: int
    data_messages: int
    data_bytes: int
    naps: int
    looks: int


def traffic(observer: native.Observer) -> Traffic:
    """What the leader of the observer's node has done so far."""
    out = ffi.new("hvdft_traffic *")
    abi.library().hvdft_observer_traffic(observer.handle, out)
    return abi.read(Traffic, out)


@dataclass(frozen=True)
class Announced:
    """What rank 0's worker has taken of other ranks' announcements, on its node.

    Attributes:
        announcements: how many.
        bytes: of all of them.
    """

    announcements: int
    bytes: int


def announced(observer: native.Observer) -> Announced:
    """What the coordinator has taken so far; 0 on other nodes than rank 0's."""
    out = ffi.new("hvdft_announced *")
    abi.library().hvdft_observer_announced(observer.handle, out)
    return abi.read(Announced, out)


def ring_end(observer: native.Observer, rank: int, *, sent: bool) -> EdgeEnd | None:
    """Sent or received progress of the node whose first rank this is; None for other ranks."""
    out = ffi.new("hvdft_ring_end *")
    if not abi.checked(abi.library().hvdft_observer_ring_end(observer.handle, rank, sent, out)):
        return None
    place = (_PHASES[out.phase], int(out.step), int(out.segment)) if out.known else None
    return EdgeEnd(out.op, out.position, place)


@dataclass(frozen=True)
class OpProgress:
    """How far an op has come on the observer's node.

    Attributes:
        bytes: of its result.
        segments: in which the node's ranks sum it.
        reduced: of these, summed over all ranks.
        gathered: whether nodes gather it; else it goes round the ring.
    """

    bytes: int
    segments: int
    reduced: int
    gathered: bool


def op_progress(observer: native.Observer, op: int) -> OpProgress | None:
    """How far an op has come; None if the log no longer has it."""
    out = ffi.new("hvdft_op_progress *")
    if not abi.library().hvdft_observer_op_progress(observer.handle, op, out):
        return None
    return abi.read(OpProgress, out)


@dataclass(frozen=True)
class RankProgress:
    """How far a rank has come.

    Attributes:
        op: it has contributed its part of all ops before this one.
        segment: and so many segments of this one.
        announced: a count of what it has announced; it grows by 2. Of this node's ranks.
        taken: the same, of what the coordinator has taken of it. Likewise.
    """

    op: int
    segment: int
    announced: int
    taken: int


def rank_progress(observer: native.Observer, rank: int) -> RankProgress:
    """How far a rank has come."""
    out = ffi.new("hvdft_rank_progress *")
    abi.library().hvdft_observer_rank_progress(observer.handle, rank, out)
    return abi.read(RankProgress, out)


def local_ranks(observer: native.Observer) -> range:
    """The ranks of the observer's node."""
    first = abi.library().hvdft_observer_first_local(observer.handle)
    return range(first, first + abi.library().hvdft_observer_locals(observer.handle))


def pair_of_ranks(observer: native.Observer, source: int, dest: int) -> PairOfRanks | None:
    """The log of the messages from one rank to another; None if there is none."""
    out = ffi.new("hvdft_pair *")
    if not abi.checked(abi.library().hvdft_observer_pair(observer.handle, source, dest, out)):
        return None
    return PairOfRanks(source, dest, out.sent, out.received, out.decided_before, out.memory_bytes)


def tuned(observer: native.Observer) -> list[int]:
    """The ids of the ops by which autotuning has changed a parameter, in the log's order."""
    kind, ids = abi.constant("HVDFT_TUNED"), list[int]()
    while (op := abi.library().hvdft_observer_note(observer.handle, kind, len(ids))) >= 0:
        ids.append(op)
    return ids


def signature(observer: native.Observer, op: int) -> str | None:
    """The signature of an op; None if the log no longer has it."""
    text = ffi.new("char[]", 4096)
    if not abi.library().hvdft_observer_op(observer.handle, op, text, len(text)):
        return None
    return abi.text(text)
