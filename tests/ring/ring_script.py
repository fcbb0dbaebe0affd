"""What every rank of test_ring.py's jobs does; asserts, and prints `good` at rank 0's end."""

import os
import sys
import traceback

import numpy as np
import psutil

import hvd_ft.ring
from hvd_ft.errors import HvdFtError
from hvd_ft.job.ring_order import by_host, edges_across
from hvd_ft.mpi import capabilities
from hvd_ft.native import mpi
from hvd_ft.ring import DTYPES, OPS, Ring

CHUNK_LINE = 64  # bytes; chunks are cut there
NUMPY = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}


def inputs(members, count, dtype):
    """Returns the arrays of all members; every member can make them."""
    made = []
    for member in range(members):
        values = np.random.default_rng(1000 * member + count).normal(size=count) * 50
        made.append((values > 0) if dtype == "bool" else values.astype(np.int64).astype(dtype))
        if dtype.startswith("float"):
            made[-1] = values.astype(dtype)
    return made


def expected(arrays, op):
    """Reduces chunk by chunk in the ring's order: chunk c starts at member -c."""
    members, result = len(arrays), np.empty_like(arrays[0])
    line = CHUNK_LINE // result.itemsize
    lines = -(-result.size // line)
    begin = 0
    for chunk in range(members):
        end = begin + (lines // members + (chunk < lines % members)) * line
        part = arrays[-chunk % members][begin:end]
        for step in range(1, members):
            own = arrays[(step - chunk) % members][begin:end]
            if result.dtype == np.float16:  # added in float32, rounded once a member
                part = NUMPY[op](part.astype(np.float32), own.astype(np.float32))
            else:
                part = NUMPY[op](part, own)
            part = part.astype(result.dtype)
        result[begin:end] = part
        begin = end
    return result


def same_bits(one, other):
    return one.tobytes() == other.tobytes()


def check_ring(ring, comm, counts, dtypes, ops):
    for dtype in dtypes:
        for op in ops:
            for count in counts:
                arrays = inputs(comm.size, count, dtype)
                array = arrays[comm.rank].copy()
                assert ring.allreduce(array, op) is array
                with np.errstate(all="ignore"):
                    want = expected([arrays[rank] for rank in ring.order], op)
                assert same_bits(array, want), (ring.variant, dtype, op, count, array, want)


def check_order(comm):
    """Ranks are not together on their hosts; a ring puts them together, unless it may not."""
    hosts = capabilities.hosts_of(comm)
    order = by_host(hosts)
    assert edges_across(hosts) > edges_across([hosts[rank] for rank in order]) > 0, hosts
    for variant in ("endpoints", "serial"):
        with Ring(comm, variant=variant) as ring:
            assert ring.order == tuple(order)
            check_ring(ring, comm, [1001], ["float32"], ["sum"])
        with Ring(comm, variant=variant, order="ranks") as ring:
            assert ring.order == tuple(range(comm.size))
            check_ring(ring, comm, [1001], ["float32"], ["sum"])
    fails("order='x'", lambda: Ring(comm, order="x"))


def check_at_once(ring, comm, counts, op="sum"):
    """Reduces large and small arrays at once: the bits are those of one after the other."""
    all_arrays = [inputs(comm.size, count, "float32") for count in counts]
    mine = [arrays[comm.rank].copy() for arrays in all_arrays]
    ring.allreduce_all(mine, op)
    for arrays, array in zip(all_arrays, mine, strict=True):
        assert same_bits(array, expected(arrays, op)), (ring.rings, array.size)


def listeners():
    """Returns how many sockets of this process listen."""
    listening = psutil.Process().net_connections("tcp")
    return sum(socket.status == psutil.CONN_LISTEN for socket in listening)


def check_rings(comm):
    """Several rings side by side, in the same processes."""
    if os.environ["I_MPI_FABRICS"] == "ofi":  # over tcp each of MPI's endpoints has one
        assert listeners() == mpi.facts().endpoints + 1 == 11, listeners()
    few = [0, 1, comm.size - 1, 17, 1000, 1001]
    sizes = [17, 100_003, 0, 5, 300, 30_000, 1000, 7, 1]
    for endpoints, most in ((1, 8), (2, 3)):
        for rings in (2, most):
            with Ring(comm, endpoints, 1 << 10, rings=rings) as ring:
                assert (ring.rings, ring.endpoints, ring.why) == (rings, endpoints, ""), ring.why
                check_ring(ring, comm, [*few, 100_003], ["float32", "int16"], ["sum"])
                check_ring(ring, comm, [40_000], ["float16"], ["max"])
                check_at_once(ring, comm, sizes)
                check_at_once(ring, comm, sizes[::-1], "prod")
                check_at_once(ring, comm, [])
    # Both ways: two members add the same two values; more would add them in another order.
    with Ring(comm, 1, 1 << 10, rings=4, both_ways=True) as ring:
        kind, op = ("float32", "sum") if comm.size <= 2 else ("int64", "sum")
        check_ring(ring, comm, [*few, 100_003], [kind], [op])
        exact = np.full(50_000, comm.rank + 1.0, np.float32)
        ring.allreduce(exact)
        assert (exact == comm.size * (comm.size + 1) / 2).all()
    # More than MPI has: one endpoint each instead of two, and then fewer rings.
    with Ring(comm, 2, rings=8) as ring:
        assert (ring.rings, ring.endpoints) == (8, 1), (ring.rings, ring.endpoints)
        assert "MPI was started with 10 endpoints" in ring.why, ring.why
        check_ring(ring, comm, few, ["float32"], ["sum"])
    others = 1 if comm.rank == 0 else 2
    if comm.size > 1:
        fails("other arguments", lambda: Ring(comm, rings=others))
    apart = np.zeros(100)
    with Ring(comm, 1, rings=2) as ring:
        fails("memory in common", lambda: ring.allreduce_all([apart[:60], apart[50:]]))
        fails("several types", lambda: ring.allreduce_all([apart, np.zeros(1, np.int8)]))
        ring.allreduce_all([apart[:50], apart[50:]])


def fails(part, call):
    try:
        call()
    except HvdFtError as error:
        assert part in str(error) and "\n" not in str(error), error
    else:
        raise AssertionError(f"no error with {part}")


def check_errors(comm):
    fails("variant='x'", lambda: Ring(comm, variant="x"))
    fails("endpoints=3", lambda: Ring(comm, endpoints=3))
    fails("rings=9", lambda: Ring(comm, rings=9))
    fails("rings=2 is not possible", lambda: Ring(comm, variant="serial", rings=2))
    fails("segment_bytes=0", lambda: Ring(comm, segment_bytes=0))
    for wrong in (0, 17, 1.5):
        fails(f"transfers={wrong}", lambda wrong=wrong: Ring(comm, transfers=wrong))
    fails("timeout_seconds=0", lambda: Ring(comm, timeout_seconds=0))
    fails("cannot be a ring", lambda: Ring(None))
    fails("too late", hvd_ft.ring.prepare)
    with Ring(comm) as ring:
        fails("not list", lambda: ring.allreduce([1.0]))
        fails("<c8", lambda: ring.allreduce(np.zeros(3, np.complex64)))
        fails(">f4", lambda: ring.allreduce(np.zeros(3, ">f4")))
        fails("contiguous", lambda: ring.allreduce(np.zeros(6)[::2]))
        fails("op='mean'", lambda: ring.allreduce(np.zeros(3), "mean"))
        fixed = np.zeros(3)
        fixed.flags.writeable = False
        fails("writable", lambda: ring.allreduce(fixed))
        check_ring(ring, comm, [1000], ["float32"], ["sum"])  # errors did no harm
    fails("closed", lambda: ring.allreduce(np.zeros(3)))


def check_all(comm, few):
    check_errors(comm)
    with Ring(comm, endpoints=2, segment_bytes=1000) as ring:  # rounded up to 1024
        assert ring.endpoints == 2 and ring.why == "", ring.why
        check_ring(ring, comm, few, DTYPES, OPS)
        check_ring(ring, comm, [300_007], ["float32"], ["sum"])
    with Ring(comm, endpoints=2, segment_bytes=1) as ring:
        check_ring(ring, comm, [5000], ["float64"], ["prod"])
    for transfers in (1, 16):
        with Ring(comm, segment_bytes=1 << 10, transfers=transfers) as ring:
            check_ring(ring, comm, [*few, 100_003], ["float32"], ["sum"])
    for variant in ("serial", "irecv_send_wait"):
        with Ring(comm, variant=variant) as ring:
            check_ring(ring, comm, [*few, 100_003], ["float32"], ["sum"])
    with Ring(comm, endpoints=1, segment_bytes=1 << 14) as ring:
        assert ring.endpoints == 1 and ring.why == ""
        check_ring(ring, comm, [*few, 100_003], ["float32"], ["sum"])
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
    with Ring(comm) as ring:
        assert ring.endpoints == 1 and "fewer than two CPUs" in ring.why, ring.why
        check_ring(ring, comm, few, ["float32"], ["sum"])
    fails("prepare(endpoints=1)", lambda: Ring(comm, variant="threads"))
    part = comm.Split(comm.rank % 2, -comm.rank)  # rings of some, in another order
    with Ring(part, endpoints=2) as ring:
        check_ring(ring, part, few, ["int64"], ["max"])


def check_unprepared(comm, few):
    with Ring(comm) as ring:
        assert ring.endpoints == 1 and "prepare()" in ring.why
        check_ring(ring, comm, few, ["float32"], ["sum"])
    with Ring(comm, endpoints=1) as ring:
        assert ring.endpoints == 1 and ring.why == ""
        check_ring(ring, comm, few, ["float32"], ["sum"])
    with Ring(comm, endpoints=1, rings=4) as ring:
        assert ring.rings == 1 and "prepare()" in ring.why
        check_at_once(ring, comm, few)


def check_timeout(comm):
    from mpi4py import MPI

    ring = Ring(comm, endpoints=2, timeout_seconds=0.2)
    if comm.rank == 0:
        fails("nothing has come or gone", lambda: ring.allreduce(np.ones(9999)))
        fails("has failed before", lambda: ring.allreduce(np.ones(9999)))
        print("good", flush=True)
    comm.Barrier()
    MPI.COMM_WORLD.Abort(3)  # a message is on its way for ever


def main():
    mode = sys.argv[1]
    if mode == "rings":
        hvd_ft.ring.prepare(rings=3)  # 10 endpoints
    elif mode != "unprepared":
        hvd_ft.ring.prepare(endpoints=1 if mode == "threads" else 2)
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    few = [0, 1, comm.size - 1, 17, 1000, 1001]
    if mode == "rings":
        check_rings(comm)
    elif mode == "threads":
        with Ring(comm, variant="threads", segment_bytes=1 << 10) as ring:
            check_ring(ring, comm, [*few, 100_003], ["float32"], ["sum"])
    elif mode in ("apart", "dealt"):
        if mode == "dealt":  # as if this host were two
            capabilities.hosts_of = lambda comm: [rank % 2 for rank in range(comm.size)]
        check_order(comm)
    elif mode == "unprepared":
        check_unprepared(comm, few)
    elif mode == "timeout":
        check_timeout(comm)
    else:
        check_all(comm, few)
    if comm.rank == 0:
        print("good", flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # the others would wait for this one, in MPI_Finalize too
        traceback.print_exc()
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(1)
