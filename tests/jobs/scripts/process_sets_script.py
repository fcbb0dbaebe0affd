"""Does every operation in process sets, static and dynamic; prints a digest of what came out.

The numbers are whole, so sums are exact: the digest is the same on every backend.
"""

import hashlib
import os
import sys
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
ROUNDS = 2
tf.get_logger().setLevel("ERROR")  # of functions that are traced again
digest = hashlib.sha256()


def numbers(shape: tuple[int, ...], number: int) -> tf.Tensor:
    """Different on every rank and in every round, the same in every run."""
    generator = np.random.default_rng([hvd.rank(), number, *shape])
    return tf.constant(generator.integers(1, 4, shape).astype("float32"))


def note(name: str, act: Callable[[], object]) -> None:
    """Puts the name and the result into the digest."""
    got = act()
    digest.update(name.encode())
    for part in got if isinstance(got, list | tuple) else [got]:
        digest.update(part.numpy().tobytes())


def exchange(ps: hvd.ProcessSet, number: int) -> None:
    """Does all operations in one set."""
    x, rank, size = numbers((70_001,), number), ps.rank(), ps.size()
    for op in ("Sum", "Average", "Min", "Max", "Product"):
        note(op, lambda op=op: hvd.allreduce(x, op=getattr(hvd, op), process_set=ps, name=op))
    group = [numbers((n, 2), number) for n in (1, 50, 5000)]
    note("group", lambda: hvd.grouped_allreduce(group, op=hvd.Sum, process_set=ps))
    ragged = numbers((3 * rank + number, 2), number)
    note("gather", lambda: hvd.allgather(ragged, process_set=ps, name="g"))
    note("gathers", lambda: hvd.grouped_allgather([ragged, group[1]], process_set=ps))
    root = ps.ranks[number % size]
    note("broadcast", lambda: hvd.broadcast(x, root, process_set=ps, name="b"))
    splits = [(rank + 2 * to) % 4 for to in range(size)]
    rows = numbers((sum(splits), 2), number)
    note("alltoall", lambda: hvd.alltoall(rows, splits, process_set=ps, name="t"))
    note("scatter", lambda: hvd.reducescatter(group[2], op=hvd.Sum, process_set=ps, name="s"))
    # Several on their way at once, in the order in which each rank comes to them.
    many = tf.function(lambda: [hvd.allreduce(t, process_set=ps, name=f"m{len(t)}") for t in group])
    note("many", many)


def alone(ps: hvd.ProcessSet, number: int) -> None:
    """Only its ranks do something, the others go on."""
    if ps.included():
        exchange(ps, number)


with_zero, without, single = hvd.ProcessSet([0, 2]), hvd.ProcessSet([1, 2]), hvd.ProcessSet([1])
hvd.init(process_sets=[with_zero, without, single])
for number in range(ROUNDS):
    for ps in (with_zero, without, hvd.global_process_set, single):
        alone(ps, number)
    added = hvd.add_process_set([0, 1])
    alone(added, number)
    note("all", lambda: hvd.allreduce(numbers((9,), 1), op=hvd.Sum, name="all"))
    assert hvd.remove_process_set(added)
    if number == 0:
        try:
            hvd.allreduce(numbers((2,), 1), process_set=with_zero, name="foreign")
        except (tf.errors.OpError, ValueError) as error:
            assert hvd.rank() == 1 and "not a member" in str(error), error
        else:
            assert hvd.rank() != 1
sys.stdout.write(f"rank {hvd.rank()}: {digest.hexdigest()}\n")
hvd.allreduce(tf.ones(1), name="end")  # who ends first shuts Horovod down for all
