"""The public class: a ring of an MPI communicator's processes, or several, and its allreduce."""

import atexit
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any

import numpy as np

from hvd_ft.errors import HvdFtError
from hvd_ft.job.ring_order import by_host, why_ordered
from hvd_ft.mpi import capabilities
from hvd_ft.mpi.prepare import check_rings, mpi_is_running
from hvd_ft.native import mpi
from hvd_ft.native.abi import constant
from hvd_ft.ring.choice import choose

SEGMENT_BYTES, TRANSFERS = constant("HVDFT_RING_SEGMENT"), constant("HVDFT_TRANSFERS")
TIMEOUT_SECONDS = 300.0
OPS = ("sum", "min", "max", "prod")
DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64",
          "bool")  # fmt: skip
ORDERS = ("hosts", "ranks")  # the first one is the default
VARIANTS = ("serial", "irecv_send_wait", "threads", "endpoints")

# `endpoints` if only MPI's own endpoint is available, and `endpoints` with a single one.
_ONE_THREAD, _ONE_ENDPOINT = constant("HVDFT_RING_ONE_THREAD"), constant("HVDFT_RING_ONE_ENDPOINT")
MOST_TRANSFERS = constant("HVDFT_MOST_TRANSFERS")
_OP_NAMES = {"prod": "product"}

_kept: list[object] = []  # memory that MPI may still write to after a failure


class Ring:
    """A ring of all processes of a communicator; processes of one host are neighbours in it.

    It may consist of several rings, which carry large arrays side by side and small arrays one
    each.

    Making and closing a ring and every call of `allreduce` and `allreduce_all` are collective. A
    process may have several objects of this class. Objects with endpoints share these, so only one
    thread at a time may use any of the objects.

    Attributes:
        variant: The variant that was asked for.
        rings: Number in use.
        endpoints: Number in use in each ring: 2, a thread and an endpoint for each direction, or 1.
        why: Why `rings` is less than asked for, or `endpoints` 1 although that was not asked for;
            otherwise "".
        order: The communicator's ranks in the order of the ring, in which sums are formed. It
            follows from the hosts alone, and is the same on all members.
    """

    def __init__(
        self,
        comm: Any,
        endpoints: int | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        variant: str = "endpoints",
        timeout_seconds: float = TIMEOUT_SECONDS,
        *,
        order: str = ORDERS[0],
        rings: int = 1,
        both_ways: bool = False,
        transfers: int = TRANSFERS,
    ) -> None:
        """Creates the rings' communicators and threads, and prints once what MPI supports.

        All members give the same arguments.

        Args:
            comm: An mpi4py intracommunicator, such as `MPI.COMM_WORLD`. It is duplicated.
            endpoints: Of the variant `endpoints`: 2, or 1, with one thread that drives both
                directions on one endpoint; None: 2 if every member has two CPUs to itself for each
                ring, otherwise 1. If MPI cannot provide two, there is one; `why` has the reason.
            segment_bytes: The largest message, at least 1; rounded up to cache lines. `serial` and
                `irecv_send_wait` send whole chunks.
            variant: `endpoints`; `threads`, the same two threads on one endpoint;
                `irecv_send_wait`, the ring of baidu-allreduce; `serial`, in which sending and
                receiving never overlap. The last two are for comparisons.
            timeout_seconds: `allreduce` fails after this time without progress. The variants for
                comparisons have no timeout.
            order: `hosts`: hosts in the order of their lowest ranks, and each host's ranks
                together, so that one edge leads to a host and one away from it; `ranks`: the order
                of ranks, whatever load that puts on the network.
            rings: Of the variant `endpoints`: 1 to 8, each with its own endpoints, connections and
                threads. There are fewer if MPI has too few endpoints.
            both_ways: Whether every other ring goes from each member to the previous one. With more
                than two members the order of a sum then depends on `rings`.
            transfers: How many segments, 1 to 16, may be in flight in each direction. More fill a
                link with a long round trip; fewer use less memory. The variants with whole chunks
                have one.

        Raises:
            HvdFtError: An argument is wrong or not the same on all members, MPI is not running or
                not ours, or the variant is not possible with the MPI that is running.
        """
        _check(endpoints, segment_bytes, variant, timeout_seconds, rings)
        _check_transfers(transfers)
        _check_order(order)
        _handle(comm)
        facts = mpi.facts()
        if not facts.running:
            raise HvdFtError(
                f"the MPI that the ring was built with ({facts.file}) is not the one that mpi4py "
                "has started: run 'pip install .' again beside that one"
            )
        number = constant(f"HVDFT_RING_{variant.upper()}")
        given = (number, endpoints or 0, segment_bytes, rings, both_ways, transfers)
        _check_same(comm, (*given, ORDERS.index(order)))
        self.variant = variant
        _check_threads(facts, variant)
        self.rings, self.endpoints, self.why = 1, 1, ""
        if variant == "endpoints":
            # Members may have been started with other settings, and on hosts with other CPUs.
            remedy = ": call hvd_ft.ring.prepare() before mpi4py"
            lack = _any_reason(comm, capabilities.why_no_endpoints(facts, remedy))
            if lack:
                number = _ONE_THREAD
                self.why = lack if rings > 1 or endpoints != 1 else ""
            else:
                threads = 2 * rings
                wanted = endpoints is None
                few = _any_reason(comm, capabilities.why_few_cpus(comm, threads)) if wanted else ""
                choice = choose(facts.endpoints - 1, comm.size, rings, endpoints, few)
                self.rings, self.endpoints, self.why = choice.rings, choice.endpoints, choice.why
                number = number if self.endpoints == 2 else _ONE_ENDPOINT
        hosts = capabilities.hosts_of(comm)
        self.order = tuple(by_host(hosts) if order == "hosts" else range(comm.size))
        if _is_first():
            capabilities.say_once(facts, self.endpoints, self.why, self.rings)
            if reason := why_ordered(hosts):
                capabilities.say_order_once(order, reason)
        timeout_ns = round(timeout_seconds * 1e9)
        options = mpi.RingOptions(
            number, self.rings, both_ways, transfers, segment_bytes, timeout_ns
        )
        ordered = comm.Split(0, self.order.index(comm.rank))
        self._member: mpi.Member | None = mpi.Member(_handle(ordered), options)
        ordered.Free()  # the member has duplicates
        atexit.register(self.close)  # the ring's threads must not outlive MPI

    def allreduce(self, array: np.ndarray, op: str = "sum") -> np.ndarray:
        """Reduces the arrays of all members elementwise; all get the result, in place.

        Every element is reduced in the order of the ring, so the result has the same bits on all
        members, with every variant and number of rings (but see `both_ways`) and however it is
        timed. float16 is added in float32 and rounded after each member. Integers wrap around.

        Args:
            array: Of the same size and type on all members; contiguous, writable, of a numeric type
                of 8 to 64 bits (`uint32` and `uint64` excepted) or bool.
            op: `sum`, `min`, `max` or `prod`.

        Returns:
            `array`.

        Raises:
            HvdFtError: An argument is wrong. Or a member did not take part within the timeout, or
                has another size; then the ring cannot be used any more.
        """
        self.allreduce_all([array], op)
        return array

    def allreduce_all(self, arrays: Sequence[np.ndarray], op: str = "sum") -> None:
        """Reduces several arrays at once, each as `allreduce` does, with the same bits.

        Each array is carried by as many rings as its chunks have segments, and the rings take
        turns. So a small array is carried by one ring, and all rings work at once.

        Args:
            arrays: As for `allreduce`; all of one type, with the same sizes in the same order on
                all members, and without common memory.
            op: As for `allreduce`.

        Raises:
            HvdFtError: As from `allreduce`.
        """
        if self._member is None:
            raise HvdFtError("the ring is closed: make a new one")
        dtypes = {_check_array(array) for array in arrays}
        if len(dtypes) > 1:
            raise HvdFtError("arrays of several types cannot be reduced at once: call once a type")
        _check_apart(arrays)
        if op not in OPS:
            raise HvdFtError(f"op={op!r} is not known to the ring: give one of {', '.join(OPS)}")
        if not arrays:
            return
        reduction = constant(f"HVDFT_{_OP_NAMES.get(op, op).upper()}")
        addresses = [array.ctypes.data for array in arrays]
        sizes = [array.size for array in arrays]
        try:
            self._member.allreduce(addresses, sizes, dtypes.pop(), reduction)
        except HvdFtError:
            _kept.extend(arrays)
            raise

    def close(self) -> None:
        """Frees the ring's resources; collective."""
        if self._member is not None:
            atexit.unregister(self.close)
            self._member.close()
            self._member = None

    def __enter__(self) -> "Ring":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an exception the others may not come, and freeing communicators would wait for them.
        if kind is None:
            self.close()


def _any_reason(comm: Any, reason: str) -> str:
    """Returns one of the members' reasons, the same on all members; collective, without pickle."""
    mine = np.frombuffer(reason.encode(), np.uint8)
    sizes = np.empty(comm.size, np.int32)
    comm.Allgather(np.array([mine.size], np.int32), sizes)
    if not sizes.any():
        return ""
    teller = int(sizes.argmax())
    told = mine.copy() if comm.rank == teller else np.empty(sizes[teller], np.uint8)
    comm.Bcast(told, teller)
    return told.tobytes().decode()


def _check_same(comm: Any, mine: Sequence[int]) -> None:
    """Checks that all members got the same arguments; collective, without pickle."""
    given = np.empty((comm.size, len(mine)), np.int64)
    comm.Allgather(np.array(mine, np.int64), given)
    if (given != given[0]).any():
        other = int((given != given[0]).any(axis=1).argmax())
        raise HvdFtError(
            f"member {other} of the ring was given other arguments than member 0; give all the same"
        )


def _check_apart(arrays: Sequence[np.ndarray]) -> None:
    """Checks that no two arrays have memory in common."""
    begins = sorted((array.ctypes.data, array.nbytes) for array in arrays if array.nbytes)
    for (begin, size), (after, _) in pairwise(begins):
        if after < begin + size:
            raise HvdFtError("two of the arrays have memory in common: give a copy of one")


def _check_order(order: str) -> None:
    if order not in ORDERS:
        raise HvdFtError(f"order={order!r} is not known to the ring: give {' or '.join(ORDERS)}")


def _check(
    endpoints: int | None, segment_bytes: int, variant: str, timeout_seconds: float, rings: int
) -> None:
    if variant not in VARIANTS:
        raise HvdFtError(
            f"variant={variant!r} is not known to the ring: give one of {', '.join(VARIANTS)}"
        )
    if endpoints not in (None, 1, 2):
        raise HvdFtError(f"endpoints={endpoints!r} is not known to the ring: give 1, 2 or None")
    check_rings(rings)
    if rings > 1 and variant != "endpoints":
        raise HvdFtError(f"rings={rings} is not possible with variant={variant!r}: give 1")
    if not isinstance(segment_bytes, int) or not 1 <= segment_bytes <= 1 << 40:
        raise HvdFtError(f"segment_bytes={segment_bytes!r} is not a size: give a number from 1 on")
    if not 0 < timeout_seconds <= 10**7:
        raise HvdFtError(
            f"timeout_seconds={timeout_seconds!r} is not a time: give more than 0, at most 10000000"
        )


def _check_transfers(transfers: int) -> None:
    if not isinstance(transfers, int) or not 1 <= transfers <= MOST_TRANSFERS:
        raise HvdFtError(
            f"transfers={transfers!r} is not possible for the ring: give 1 to {MOST_TRANSFERS}"
        )


def _handle(comm: Any) -> int:
    """Returns MPI's handle of an mpi4py communicator."""
    if not mpi_is_running():
        raise HvdFtError(
            "MPI is not running, and the ring needs it: start with mpirun and "
            "'from mpi4py import MPI'"
        )
    from mpi4py import MPI

    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise HvdFtError(f"{comm!r} cannot be a ring: give an mpi4py intracommunicator")
    if MPI._sizeof(MPI.Comm) != 4:
        raise HvdFtError(
            "mpi4py does not run on Intel MPI, and the ring does: start with its mpirun"
        )
    return int(MPI._handleof(comm))


def _is_first() -> bool:
    """Returns whether this process prints for all."""
    from mpi4py import MPI

    return bool(MPI.COMM_WORLD.rank == 0)


def _check_threads(facts: mpi.Facts, variant: str) -> None:
    if variant != "threads":
        return
    if not facts.multithreaded:
        raise HvdFtError(
            "variant='threads' needs MPI_THREAD_MULTIPLE, and MPI was started without: "
            "leave mpi4py.rc.thread_level at 'multiple'"
        )
    if facts.endpoints > 1:
        raise HvdFtError(
            "variant='threads' has two threads on one endpoint, which Intel MPI started with split "
            "threads forbids: call hvd_ft.ring.prepare(endpoints=1)"
        )


def _check_array(array: np.ndarray) -> int:
    """Returns the number of the array's type."""
    if not isinstance(array, np.ndarray):
        raise HvdFtError(f"a ring reduces numpy arrays, not {type(array).__name__}: convert it")
    if array.dtype.name not in DTYPES or not array.dtype.isnative:
        raise HvdFtError(
            f"a ring cannot reduce the type {array.dtype.str}: give one of {', '.join(DTYPES)}"
        )
    flags = array.flags
    if not (flags.writeable and flags.aligned and (flags.c_contiguous or flags.f_contiguous)):
        raise HvdFtError(
            "a ring reduces in place, so the array must be writable, aligned and contiguous: "
            "give a copy"
        )
    return constant(f"HVDFT_{array.dtype.name.upper()}")
