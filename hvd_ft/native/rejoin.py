"""Filling the arenas of nodes that have lost theirs; ``include/hvd_ft_rejoin.h`` documents it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.native import abi
from hvd_ft.native.abi import ffi


@dataclass(frozen=True)
class NodeState:
    """What a node's arena says; ``lost``: it is new; ``op``: that the node is in."""

    lost: int
    log_length: int
    dropped: int
    op: int
    done_over: int
    term: int
    mark: int
    events: int


@dataclass(frozen=True)
class Verdict:
    """What the nodes have to do.

    Attributes:
        needed: whether anything has to be done.
        possible: whether any arena is left.
        log_from: the node whose arena is copied by those without one.
        results_from: the node that has the results of all ops before `op`.
        op: the op that all nodes do over.
    """

    needed: bool
    possible: bool
    log_from: int
    results_from: int
    op: int


@dataclass(frozen=True)
class Slot:
    """What one of the two slots of a rank's training loop holds; see the header."""

    begin: int
    ended: int
    published: int
    word: int
    position: int
    bytes: int
    stripe: int

    @property
    def cut(self) -> int:
        """The number of the cut."""
        return self.word >> 32

    @property
    def is_shared(self) -> bool:
        """Whether the ranks of a node have stored it together."""
        return self.word & 0xFFFFFFFF != 0


def verdict(nodes: Sequence[NodeState]) -> Verdict:
    """Returns what nodes in these states have to do."""
    states = ffi.new("hvdft_rejoin_state[]", [asdict(node) for node in nodes])
    out = ffi.new("hvdft_rejoin *")
    abi.library().hvdft_rejoin_verdict(states, len(nodes), out)
    return abi.read(Verdict, out)


class Rejoining:
    """This node's arena, while nothing runs on it.

    Args:
        directory: of the arena.
        job: its id.

    Raises:
        HvdFtError: the arena is not this job's.
    """

    def __init__(self, directory: str, job: str) -> None:
        self._handle = abi.library().hvdft_rejoin_open(directory.encode(), job.encode())
        if not self._handle:
            raise HvdFtError(abi.error())

    def close(self) -> None:
        """Unmaps the arena; this cannot be used afterwards."""
        if self._handle:
            abi.library().hvdft_rejoin_close(self._handle)
            self._handle = None

    def lose(self) -> None:
        """Marks an arena that was just made as one that has to be filled."""
        abi.library().hvdft_rejoin_lose(self._handle)

    def local_ranks(self) -> range:
        """Returns the ranks of this node."""
        first, count = ffi.new("int *"), ffi.new("int *")
        abi.library().hvdft_rejoin_local_ranks(self._handle, first, count)
        return range(first[0], first[0] + count[0])

    def look(self) -> NodeState:
        """Returns what the arena says."""
        out = ffi.new("hvdft_rejoin_state *")
        abi.library().hvdft_rejoin_look(self._handle, out)
        return abi.read(NodeState, out)

    def head(self) -> memoryview:
        """Returns the head of the file, for `make_room` and `adopt` on another node."""
        return self.stretch(0, abi.library().hvdft_rejoin_head_bytes())

    def ranges(self, complete: int) -> list[tuple[int, int]]:
        """Returns offset and bytes of each range that another node copies.

        Args:
            complete: results of ops before this one are copied.
        """
        count, room = 0, 256
        while count > room or count == 0:
            room = max(room, count)
            out = ffi.new("uint64_t[]", 2 * room)
            count = abi.library().hvdft_rejoin_ranges(self._handle, complete, out, room)
        return [(out[2 * i], out[2 * i + 1]) for i in range(count)]

    def stretch(self, offset: int, size: int) -> memoryview:
        """Returns a stretch of the file, writable."""
        return _view(abi.library().hvdft_rejoin_at(self._handle, offset), size)

    def make_room(self, their_head: bytes) -> None:
        """Allocates memory for the data to copy from the node with this head.

        Raises:
            NoRoomError: there is not enough.
        """
        abi.checked(abi.library().hvdft_rejoin_make_room(self._handle, their_head))

    def adopt(self, their_head: bytes, generation: int, ahead_ns: int) -> None:
        """Adopts the copied data; this node's clock is that far ahead of the other's.

        Raises:
            HvdFtError: the log that was copied is damaged.
        """
        adopt = abi.library().hvdft_rejoin_adopt
        abi.checked(adopt(self._handle, their_head, generation, ahead_ns))

    def renewal(self, rank: int, leaving: bool) -> int:
        """Returns the fate of a rank of a filled node, for `renew`.

        Args:
            rank: its number.
            leaving: whether its place in the job has no host of its own.
        """
        return int(abi.library().hvdft_rejoin_renewal(self._handle, rank, leaving))

    def renew(self, rank: int, renewal: int) -> None:
        """Notes what becomes of a rank, on any node."""
        abi.library().hvdft_rejoin_renew(self._handle, rank, renewal)

    def note(self, op: int) -> None:
        """Notes that this op will be done over."""
        abi.library().hvdft_rejoin_note(self._handle, op)

    def result(self, op: int) -> memoryview:
        """Returns the memory of an op's result.

        Raises:
            HvdFtError: the log does not have the op.
        """
        data = ffi.new("void **")
        size = abi.checked(abi.library().hvdft_rejoin_result(self._handle, op, data))
        return _view(data[0], size)

    def slot(self, rank: int, loop: int, slot: int) -> tuple[Slot, memoryview | None]:
        """Returns a slot's contents, of a rank of this node or of one whose parts are here."""
        out, data = ffi.new("hvdft_rejoin_slot *"), ffi.new("void **")
        look = abi.library().hvdft_rejoin_slot_of
        abi.checked(look(self._handle, rank, loop, slot, out, ffi.cast("const void **", data)))
        found = abi.read(Slot, out)
        return found, _view(data[0], found.bytes).toreadonly() if data[0] else None

    def slot_room(self, rank: int, loop: int, slot: int, size: int) -> memoryview:
        """Allocates memory for a slot of a rank of this node.

        Raises:
            NoRoomError: there is not enough.
        """
        room = ffi.new("void **")
        take = abi.library().hvdft_rejoin_slot_room
        abi.checked(take(self._handle, rank, loop, slot, size, room))
        return _view(room[0], size)

    def publish_slot(self, rank: int, loop: int, slot: int, snapshot: Slot) -> None:
        """Publishes the slot as the snapshot from which the rank starts again."""
        struct = ffi.new("hvdft_rejoin_slot *", asdict(snapshot))
        abi.library().hvdft_rejoin_slot_publish(self._handle, rank, loop, slot, struct)

    def resume(self, op: int, term: int, mark: int) -> None:
        """Sets the node's record to the beginning of an op, which completes the filling."""
        resume = ffi.new("hvdft_rejoin_resume *", {"op": op, "term": term, "mark": mark})
        abi.library().hvdft_rejoin_resume_at(self._handle, resume)

    def heard(self, first_rank: int, events: int) -> None:
        """Records how many events of the node with this first rank are known here."""
        abi.library().hvdft_rejoin_heard(self._handle, first_rank, events)


def _view(data: Any, size: int) -> memoryview:
    return memoryview(ffi.buffer(data, size)).cast("B")
