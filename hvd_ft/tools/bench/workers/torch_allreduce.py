"""The worker of `hvdft bench allreduce --framework torch`: run with `python -m`.

Allreduces are in place, as those of gradients are. Without an agent `hvd_ft.torch` is stock
Horovod, and a State keeps nothing. The backend `gloo` is torch.distributed's own.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import hvd_ft.torch as hvd
from hvd_ft.tools.bench import driver_requests, known

_OPS = {
    "sum": hvd.Sum,
    "average": hvd.Average,
    "min": hvd.Min,
    "max": hvd.Max,
    "prod": hvd.Product,
}
_GLOO_OPS = {
    "sum": dist.ReduceOp.SUM,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "prod": dist.ReduceOp.PRODUCT,
}

Tensors = list[torch.Tensor]


class Horovod:
    """Allreduces by Horovod, on ft or on MPI."""

    def __init__(self, op: str) -> None:
        hvd.init()
        self.rank, self.size, self._op = hvd.rank(), hvd.size(), _OPS[op]
        self._state = hvd.State(snapshot_steps=1)
        self._state.sync()

    def reduce(self, tensors: Tensors) -> None:
        """Allreduces tensors in place."""
        name = f"bench.{tensors[0].numel()}"
        handles = [
            hvd.allreduce_async_(tensor, op=self._op, name=f"{name}.{number}")
            for number, tensor in enumerate(tensors)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    def together(self) -> None:
        """Waits for all ranks: a late one would lengthen the next iteration."""
        self._state.commit()  # cuts the op log, or the results would fill the arena
        hvd.allreduce(torch.zeros(1), name="together")


class Gloo:
    """Allreduces by torch.distributed's Gloo."""

    def __init__(self, op: str, store: Path) -> None:
        self.rank, self.size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
        self._op = _GLOO_OPS[op]
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=self.rank, world_size=self.size
        )

    def reduce(self, tensors: Tensors) -> None:
        """Allreduces tensors in place."""
        works = [dist.all_reduce(tensor, op=self._op, async_op=True) for tensor in tensors]
        for work in works:
            assert work is not None
            work.wait()

    def together(self) -> None:
        """Waits for all ranks."""
        dist.all_reduce(torch.zeros(1))


class Measurement:
    """Allreduces of one series: the type, the operation and the number of tensors are fixed."""

    def __init__(self, backend: Horovod | Gloo, dtype: str, op: str, tensors: int) -> None:
        self._backend, self._dtype, self._op, self._tensors = backend, dtype, op, tensors

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measures one round: seconds of each iteration, and how many elements are wrong."""
        count = request["count"] // self._tensors
        seconds, wrong = [], 0
        for number in range(request["warmup"] + request["iterations"]):
            # Other inputs each time, or a stale result would go unnoticed.
            took, bad = self._once(count, number % 2)
            wrong += bad
            if number >= request["warmup"]:
                seconds.append(took)
        return {"seconds": seconds, "wrong": wrong}

    def _once(self, count: int, phase: int) -> tuple[float, int]:
        rank, size = self._backend.rank, self._backend.size
        numbers = range(phase, phase + self._tensors)
        tensors = [
            torch.from_numpy(
                known.contribution(self._op, self._dtype, count, rank, size, phase=number)
            )
            for number in numbers
        ]
        self._backend.together()
        begin = time.perf_counter()
        self._backend.reduce(tensors)
        took = time.perf_counter() - begin
        wrong = sum(
            known.count_wrong(
                self._op,
                tensor.numpy(),
                known.result(self._op, self._dtype, count, size, phase=number),
            )
            for number, tensor in zip(numbers, tensors, strict=True)
        )
        return took, wrong


def main() -> None:
    """Serves the driver until it has no more requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket")
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--op", required=True)
    parser.add_argument("--tensors", type=int, required=True)
    parser.add_argument("--gloo", type=Path, metavar="FILE", help="use Gloo; its store")
    options = parser.parse_args()
    channel = driver_requests.connect(options.socket)
    torch.set_num_threads(1)  # several ranks share the CPUs
    backend = Gloo(options.op, options.gloo) if options.gloo else Horovod(options.op)
    measurement = Measurement(backend, options.dtype, options.op, options.tensors)
    driver_requests.serve(channel, backend.rank, measurement.answer)


if __name__ == "__main__":
    main()
