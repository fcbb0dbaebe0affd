"""The ring over MPI, seen from Python: the only file that uses its C functions.

Every name here stands for one in ``include/hvd_ft_mpi.h``. It is separate from `hvd_ft.native`
because its library needs MPI, and a worker must not even look for it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.native import abi
from hvd_ft.native.abi import ffi, mpi_library
from hvd_ft.native.links import GATHER, MIRROR, TO_PREDECESSOR, TO_SUCCESSOR, Counts, End
from hvd_ft.native.types import OpRules

_KINDS = {
    abi.constant("HVDFT_LINK_MIRROR"): MIRROR,
    abi.constant("HVDFT_LINK_SUCCESSOR"): TO_SUCCESSOR,
    abi.constant("HVDFT_LINK_PREDECESSOR"): TO_PREDECESSOR,
    abi.constant("HVDFT_LINK_GATHER"): GATHER,
}


@dataclass(frozen=True)
class Facts:
    """How MPI was initialised.

    Attributes:
        running: It is initialised and not finalised.
        multithreaded: With MPI_THREAD_MULTIPLE.
        endpoints: Number of split threads; 1 without them.
        library: Its name and version.
        file: Where it was loaded from.
    """

    running: bool
    multithreaded: bool
    endpoints: int
    library: str
    file: str


def _checked(code: int) -> None:
    if code < 0:
        raise HvdFtError(f"ring: {abi.text(mpi_library().hvdft_error())}")


def _handle(communicator: int) -> int:
    """MPI's handle, which mpi4py returns as an unsigned number."""
    return int(ffi.cast("int", communicator))


def version() -> str:
    """Returns the library's version; equal to the package's if both are of one build."""
    return abi.text(mpi_library().hvdft_version())


def facts() -> Facts:
    """Returns how MPI was initialised."""
    out = ffi.new("hvdft_mpi_facts *")
    mpi_library().hvdft_ring_facts(out)
    return Facts(
        bool(out.running),
        bool(out.multithreaded),
        int(out.endpoints),
        abi.text(out.library),
        abi.text(out.file),
    )


@dataclass(frozen=True)
class RingOptions:
    """How a ring is to be; the same on all its members.

    Attributes:
        variant: `HVDFT_RING_…`.
        rings: Number that carry large arrays side by side.
        both_ways: Whether every other one goes backwards.
        transfers: Of segments that may be under way in a direction.
        segment_bytes: The largest message.
        timeout_ns: Of a wait in which nothing moves.
    """

    variant: int
    rings: int
    both_ways: bool
    transfers: int
    segment_bytes: int
    timeout_ns: int


class Member:
    """This process's member of a ring; creating, using and closing it are collective."""

    def __init__(self, communicator: int, options: RingOptions) -> None:
        handle = ffi.new("hvdft_ring **")
        given = ffi.new("hvdft_ring_options *", asdict(options))
        _checked(mpi_library().hvdft_ring_open(_handle(communicator), given, handle))
        self._handle: Any = handle[0]

    def allreduce(
        self, addresses: Sequence[int], counts: Sequence[int], dtype: int, op: int
    ) -> None:
        """Reduces arrays of one type in place, all at once.

        Args:
            addresses: Of the arrays.
            counts: Their elements.
            dtype: `HVDFT_FLOAT32` etc.
            op: `HVDFT_SUM` etc.
        """
        assert self._handle is not None
        data = ffi.new("void *[]", [ffi.cast("void *", address) for address in addresses])
        _checked(
            mpi_library().hvdft_ring_allreduce(
                self._handle, data, list(counts), len(addresses), dtype, op
            )
        )

    def close(self) -> None:
        """Ends the threads and frees the communicators."""
        if self._handle:
            mpi_library().hvdft_ring_close(self._handle)
            self._handle = None


@dataclass(frozen=True)
class LeaderOptions:
    """What the leader of a node works with.

    Attributes:
        threads: 3: for sending, receiving and the mirror; 2: for the ring and the mirror; 1: for
            everything. Each has endpoints of its own. The same for all leaders.
        connections: that carry each edge of the ring, with an endpoint each; the same for all.
        transfers: that may be under way over a connection.
        nodes_below: a node at most, in the tree by which nodes tell each other how their ranks
            fare; the same for all leaders.
        yield_ns: how long a thread that waits for MPI only yields before it naps.
        busy_nap_ns: how long such a nap is at most in an ordinary wait.
    """

    threads: int
    connections: int
    transfers: int
    nodes_below: int
    yield_ns: int
    busy_nap_ns: int


class Leader:
    """The leader of a node: its mirror and its member of the ring. Creating it is collective.

    Args:
        directory: of the job, on this node.
        job: its id.
        rank: of the agent that leads.
        bounds: the first rank of every node, and the number of ranks.
        communicator: MPI's handle of the leaders' communicator.
        options: its own.
        rules: those of rank 0's leader count.
    """

    def __init__(
        self,
        directory: str,
        job: str,
        rank: int,
        bounds: Sequence[int],
        communicator: int,
        *,
        options: LeaderOptions,
        rules: OpRules,
    ) -> None:
        handle = ffi.new("hvdft_leader **")
        _checked(
            mpi_library().hvdft_leader_open(
                directory.encode(),
                job.encode(),
                rank,
                list(bounds),
                len(bounds) - 1,
                _handle(communicator),
                ffi.new("hvdft_leader_options *", asdict(options)),
                ffi.new("hvdft_op_rules *", asdict(rules)),
                handle,
            )
        )
        self._handle = handle[0]
        self._node = list(bounds).index(rank)
        # The mirror's, the ring's two, those of gathered ops.
        self._links = ffi.new("hvdft_link[]", 2 * len(bounds))

    def links(self) -> dict[End, Counts]:
        """Returns the counts of this node's links; not after `close`."""
        count = mpi_library().hvdft_leader_links(self._handle, self._links, len(self._links))
        return {
            End(self._node, link.peer, _KINDS[link.kind]): Counts(
                link.begun, link.posted, link.arrived
            )
            for link in self._links[0:count]
        }

    def close(self, timeout_seconds: float) -> bool:
        """Waits until all leaders have called this and all nodes are up to date; ends the leader.

        Returns:
            Whether that happened in time.
        """
        code = mpi_library().hvdft_leader_close(self._handle, round(timeout_seconds * 1e9))
        return bool(code == 0)


@dataclass(frozen=True)
class Probed:
    """What a probe has measured of this process.

    Attributes:
        ns: Nanoseconds from when the first thread began until the last one was done.
        messages: That this process has sent; it has received as many.
        window: Those that a thread had under way at a time, in each direction.
        wrong: Bytes that did not arrive as they were sent.
    """

    ns: int
    messages: int
    window: int
    wrong: int


class Probe:
    """Threads that exchange messages with those of one other process. Making it is collective.

    Args:
        communicator: MPI's handle, of one with two members.
        threads: How many.
        split: Whether each has an endpoint of its own; MPI was started with one more than that.
    """

    def __init__(self, communicator: int, threads: int, *, split: bool) -> None:
        handle = ffi.new("hvdft_probe **")
        _checked(mpi_library().hvdft_probe_open(_handle(communicator), threads, split, handle))
        self._handle: Any = handle[0]

    def run(self, size: int, windows: int) -> Probed:
        """Exchanges ``windows`` windows of messages of ``size`` bytes on each thread; collective.

        Raises:
            HvdFtError: MPI failed.
        """
        out = ffi.new("hvdft_probed *")
        _checked(mpi_library().hvdft_probe_run(self._handle, size, windows, out))
        return abi.read(Probed, out)

    def close(self) -> None:
        """Frees the communicators; collective."""
        if self._handle:
            mpi_library().hvdft_probe_close(self._handle)
            self._handle = None
