"""The ring over MPI, seen from Python: the only file that uses its C functions.

Every name here stands for one in ``include/hvd_ft_mpi.h``. It is apart from
`hvd_ft.native` because its library needs MPI, and must not even be looked for in a worker.
"""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.native import abi
from hvd_ft.native.links import MIRROR, TO_PREDECESSOR, TO_SUCCESSOR, Counts, End


class _Facts(ctypes.Structure):
    _fields_ = (
        ("running", c_uint32),
        ("multithreaded", c_uint32),
        ("endpoints", c_uint32),
        ("reserved", c_uint32),
        ("library", c_char * 128),
        ("file", c_char * 512),
    )


class _Link(ctypes.Structure):
    _fields_ = (
        ("peer", c_uint32),
        ("kind", c_uint32),
        ("begun", c_uint64),
        ("posted", c_uint64),
        ("arrived", c_uint64),
    )


_KINDS = (MIRROR, TO_SUCCESSOR, TO_PREDECESSOR)

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "hvdft_error": (c_char_p, []),
    "hvdft_version": (c_char_p, []),
    "hvdft_ring_facts": (None, [POINTER(_Facts)]),
    "hvdft_ring_open": (c_int, [c_int, c_int, c_uint64, c_uint64, POINTER(c_void_p)]),
    "hvdft_ring_close": (None, [c_void_p]),
    "hvdft_leader_open": (
        c_int,
        [c_char_p, c_char_p, c_int, POINTER(c_int), c_int, c_int, c_int, POINTER(c_void_p)],
    ),
    "hvdft_leader_close": (c_int, [c_void_p, c_uint64]),
    "hvdft_leader_links": (c_int, [c_void_p, POINTER(_Link), c_int]),
    "hvdft_ring_allreduce": (c_int, [c_void_p, c_void_p, c_uint64, c_uint32, c_uint32]),
}


@dataclass(frozen=True)
class Facts:
    """What MPI was started as.

    Attributes:
        running: It is initialised and not finalised.
        multithreaded: With MPI_THREAD_MULTIPLE.
        endpoints: With split threads so many, else 1.
        library: Its name and version.
        file: Where it was loaded from.
    """

    running: bool
    multithreaded: bool
    endpoints: int
    library: str
    file: str


@cache
def _library() -> ctypes.CDLL:
    remedy = "install hvd_ft again: pip install . (in a checkout: make core)"
    return abi.load(abi.mpi_library_path(), _SIGNATURES, remedy)


def _checked(code: int) -> None:
    if code < 0:
        raise HvdFtError(f"ring: {_library().hvdft_error().decode(errors='replace')}")


def version() -> str:
    """Returns the library's version; equal to the package's if both are of one build."""
    return str(_library().hvdft_version().decode())


def facts() -> Facts:
    """Returns what MPI was started as."""
    out = _Facts()
    _library().hvdft_ring_facts(byref(out))
    return Facts(
        bool(out.running),
        bool(out.multithreaded),
        int(out.endpoints),
        out.library.decode(errors="replace"),
        out.file.decode(errors="replace"),
    )


class Member:
    """This process's member of a ring; making, using and closing it are collective."""

    def __init__(
        self, communicator: int, variant: int, segment_bytes: int, timeout_ns: int
    ) -> None:
        handle = c_void_p()
        _checked(
            _library().hvdft_ring_open(
                communicator, variant, segment_bytes, timeout_ns, byref(handle)
            )
        )
        self._handle: c_void_p | None = handle

    def allreduce(self, address: int, count: int, dtype: int, op: int) -> None:
        """Reduces ``count`` elements at ``address`` in place."""
        assert self._handle is not None
        _checked(_library().hvdft_ring_allreduce(self._handle, address, count, dtype, op))

    def close(self) -> None:
        """Ends the thread and frees the communicators."""
        if self._handle:
            _library().hvdft_ring_close(self._handle)
            self._handle = None


class Leader:
    """The leader of a node: its mirror and its member of the ring. Making it is collective.

    Args:
        directory: of the job, on this node.
        job: its id.
        rank: of the agent that leads.
        firsts: the first rank of every node, and the number of ranks.
        communicator: MPI's handle of the leaders' communicator.
        one_endpoint: whether one thread and endpoint does everything; the same for all leaders.
    """

    def __init__(
        self,
        directory: str,
        job: str,
        rank: int,
        firsts: Sequence[int],
        communicator: int,
        *,
        one_endpoint: bool,
    ) -> None:
        handle = c_void_p()
        _checked(
            _library().hvdft_leader_open(
                directory.encode(),
                job.encode(),
                rank,
                (c_int * len(firsts))(*firsts),
                len(firsts) - 1,
                communicator,
                one_endpoint,
                byref(handle),
            )
        )
        self._handle = handle
        self._node = list(firsts).index(rank)
        self._links = (_Link * (len(firsts) + 1))()

    def links(self) -> dict[End, Counts]:
        """Returns what has been counted of this node's links, until `close` is called."""
        count = _library().hvdft_leader_links(self._handle, self._links, len(self._links))
        return {
            End(self._node, link.peer, _KINDS[link.kind]): Counts(
                link.begun, link.posted, link.arrived
            )
            for link in self._links[:count]
        }

    def close(self, timeout_seconds: float) -> bool:
        """Waits until all leaders are here and all nodes know everything; ends the leader.

        Returns:
            Whether they were here within the time.
        """
        code = _library().hvdft_leader_close(self._handle, round(timeout_seconds * 1e9))
        return bool(code == 0)
