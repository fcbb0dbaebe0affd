"""Does every operation with every type and writes what came out; run on the MPI and the ft backend.

The inputs are small whole numbers, so that sums are exact in every type and in every order.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft.tensorflow import keras

TYPES = ("uint8", "int8", "uint16", "int16", "int32", "int64")
TYPES += ("float16", "float32", "float64", "bool")
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (3, 5), (70_001,))
REDUCTIONS = ("Sum", "Average", "Min", "Max", "Product")

results: dict[str, np.ndarray] = {}


def keep(name: str, act: Callable[[], object]) -> None:
    """Notes what `act` returned, or that it failed."""
    try:
        got = act()
    except (tf.errors.OpError, ValueError, TypeError, NotImplementedError) as error:
        results[name] = np.array(type(error).__name__)
        return
    for i, part in enumerate(got if isinstance(got, list | tuple) else [got]):
        results[f"{name}#{i}"] = part.numpy()


def numbers(shape: tuple[int, ...], dtype: str) -> tf.Tensor:
    """Different on every rank, and the same in every run."""
    generator = np.random.default_rng([hvd.rank(), len(shape), *shape])
    return tf.constant(generator.integers(1, 4, shape).astype(dtype))


def reduce_everything() -> None:
    for dtype in TYPES:
        for shape in SHAPES:
            for op in REDUCTIONS:
                x = numbers(shape, dtype)
                name = f"allreduce {op} {dtype} {shape}"
                keep(name, lambda x=x, op=op: hvd.allreduce(x, op=getattr(hvd, op), name="r"))
    for dtype in ("float16", "float32", "float64", "int32"):
        x = numbers((9,), dtype)
        keep(
            f"scaled {dtype}",
            lambda x=x: hvd.allreduce(
                x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5, name="s"
            ),
        )
        group = [numbers((n,), dtype) for n in (1, 4, 1000)]
        for op in ("Sum", "Average"):
            keep(
                f"grouped {op} {dtype}",
                lambda group=group, op=op: hvd.grouped_allreduce(
                    group, op=getattr(hvd, op), name="g"
                ),
            )
    generator = np.random.default_rng(hvd.rank())
    uneven = tf.constant(generator.standard_normal(10_000).astype("float32"))
    keep("close: normal", lambda: hvd.allreduce(uneven, op=hvd.Sum, name="n"))


def gather_and_broadcast() -> None:
    for dtype in TYPES:
        x = numbers((4, 3), dtype)
        keep(f"allgather {dtype}", lambda x=x: hvd.allgather(x, name="a"))
        ragged = numbers((2 * hvd.rank(), 3), dtype)  # nothing on rank 0
        keep(f"ragged allgather {dtype}", lambda x=ragged: hvd.allgather(x, name="ra"))
        for root in range(hvd.size()):
            keep(f"broadcast {root} {dtype}", lambda x=x, r=root: hvd.broadcast(x, r, name="b"))


def exchange() -> None:
    """What gives each rank something else."""
    rank, size = hvd.rank(), hvd.size()
    for dtype in TYPES:
        splits = [(rank + 2 * to) % 4 for to in range(size)]
        x = numbers((sum(splits) + 1, 2), dtype)  # one row has no receiver
        keep(f"own: alltoall {dtype}", lambda x=x, s=splits: hvd.alltoall(x, s, name="t"))
        x = numbers((2 * size,), dtype)
        keep(f"own: equal alltoall {dtype}", lambda x=x: hvd.alltoall(x, name="e"))
    for dtype in ("int32", "int64", "float16", "float32", "float64"):
        for op in ("Sum", "Average"):
            for shape in ((0, 3), (1,), (7,), (6, 5), (40_000, 3)):
                x = numbers(shape, dtype)
                keep(
                    f"own: reducescatter {op} {dtype} {shape}",
                    lambda x=x, op=op: hvd.reducescatter(x, op=getattr(hvd, op), name="rs"),
                )
            group = [numbers((n, 2), dtype) for n in (1, 5, 50_000)]
            keep(
                f"own: grouped reducescatter {op} {dtype}",
                lambda group=group, op=op: hvd.grouped_reducescatter(group, op=getattr(hvd, op)),
            )
        x = numbers((7, 2), dtype)
        keep(
            f"own: scaled {dtype}",
            lambda x=x: hvd.reducescatter(
                x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5, name="rp"
            ),
        )
        group = [numbers((rank + n, 2), dtype) for n in (0, 1, 1000)]
        keep(f"grouped allgather {dtype}", lambda group=group: hvd.grouped_allgather(group))


def train() -> None:
    """What gradients go through."""
    rank = hvd.rank()
    x = numbers((6,), "float32")
    fp16 = hvd.Compression.fp16
    keep("fp16", lambda: hvd.allreduce(x, op=hvd.Average, compression=fp16, name="c"))
    values, rows = numbers((2, 3), "float32"), tf.constant([rank, rank + 1])
    sparse = hvd.allreduce(tf.IndexedSlices(values, rows, dense_shape=(9, 3)), op=hvd.Average)
    keep("sparse", lambda: [sparse.values, sparse.indices])
    layer = hvd.SyncBatchNormalization(axis=-1)
    batch = tf.cast(numbers((4, 2), "float32"), tf.float32) * (rank + 1)
    keep("own: close: batch norm", lambda: layer(batch, training=True))
    keep("close: batch norm's mean", lambda: layer.moving_mean)


def accumulate() -> None:
    """Several backward passes to one reduction."""
    variable = tf.Variable(tf.zeros(5))
    sgd = tf.keras.optimizers.legacy.SGD(1.0)
    optimizer = keras.DistributedOptimizer(sgd, backward_passes_per_step=2)
    slope = numbers((5,), "float32")
    for _ in range(4):
        optimizer.minimize(lambda: tf.reduce_sum(variable * slope), [variable])
    keep("close: backward passes", lambda: variable)


def elastic() -> None:
    """Horovod Elastic's states, as plain state."""
    rank = hvd.rank()
    state = hvd.elastic.TensorFlowState([tf.Variable(numbers((4,), "float32"))], batch=rank + 7)
    state.sync()  # rank 0's
    keep("elastic: synced", lambda: [state.variables[0], tf.constant(state.batch)])
    state.variables[0].assign_add(tf.ones(4))
    state.batch += 1
    state.restore()
    keep("elastic: restored", lambda: [state.variables[0], tf.constant(state.batch)])
    state.batch += 1
    state.save()
    state.restore()
    keep("elastic: saved", lambda: tf.constant(state.batch))
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    model.compile(tf.keras.optimizers.legacy.SGD(1.0), "mse")
    kept = hvd.elastic.TensorFlowKerasState(model, epoch=rank)
    kept.sync()
    same = [hvd.allgather(w[None]) for w in model.trainable_variables]
    keep("elastic: model", lambda: [tf.reduce_max(w, 0) - tf.reduce_min(w, 0) for w in same])


def fuse() -> None:
    """Many tensors at once, in one function: they travel fused."""

    @tf.function
    def many() -> list[tf.Tensor]:
        return [
            hvd.allreduce(numbers((n,), "float32"), op=hvd.Sum, name=f"f{n}") for n in range(1, 40)
        ]

    keep("fused", many)
    keep("mismatch", lambda: hvd.allreduce(numbers((hvd.rank() + 1,), "int32"), name="m"))


def meet() -> None:
    """Every rank leaves a note before the barrier, and after it sees the notes of all."""
    folder = Path(sys.argv[1])
    for i in range(20):
        (folder / f"note-{i}-{hvd.rank()}").touch()
        hvd.barrier()
        assert len(list(folder.glob(f"note-{i}-*"))) == hvd.size()


hvd.init()
meet()
reduce_everything()
gather_and_broadcast()
exchange()
train()
accumulate()
elastic()
fuse()
results["object"] = np.array(hvd.broadcast_object({"of": hvd.rank()}, 1)["of"])
results["objects"] = np.array(hvd.allgather_object(hvd.rank()))
np.savez(Path(sys.argv[1]) / f"rank-{hvd.rank()}.npz", **results)
