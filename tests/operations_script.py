"""Does every operation with every type and writes what came out; run on the MPI and the ft backend.

The inputs are small whole numbers, so that sums are exact in every type and in every order.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

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
    for i, part in enumerate(got if isinstance(got, list) else [got]):
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
fuse()
results["object"] = np.array(hvd.broadcast_object({"of": hvd.rank()}, 1)["of"])
results["objects"] = np.array(hvd.allgather_object(hvd.rank()))
np.savez(Path(sys.argv[1]) / f"rank-{hvd.rank()}.npz", **results)
