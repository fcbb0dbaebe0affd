"""`hvdft bench allreduce`: all backends measure one size in turn, then the next size."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hvd_ft.tools.bench import backends
from hvd_ft.tools.bench.series import COPIES, Row, Times

WORKERS = {
    "tensorflow": "hvd_ft.tools.bench.workers.allreduce",
    "torch": "hvd_ft.tools.bench.workers.torch_allreduce",
}


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        framework: That the workers use.
        backends: Some of its `series.BACKENDS`, and `series.COPIES`.
        ranks: Number of ranks, on this host.
        sizes: Total bytes of all tensors of an iteration.
        dtype: One of `series.DTYPES`.
        op: One of `series.OPS`.
        tensors: Number of tensors submitted together, each of bytes / tensors.
        fusion: Whether Horovod may fuse them.
        iterations: Timed iterations in a round.
        warmup: Untimed iterations before them, at least 1.
        repeats: Rounds of each backend at each size.
        round_limit_seconds: A round that takes longer fails the run.
    """

    framework: str
    backends: Sequence[str]
    ranks: int
    sizes: Sequence[int]
    dtype: str
    op: str
    tensors: int
    fusion: bool
    iterations: int
    warmup: int
    repeats: int
    round_limit_seconds: float

    @property
    def mode(self) -> str:
        """How the bytes are handed over, in words."""
        if self.tensors == 1:
            return "1 tensor"
        return f"{self.tensors} tensors together, {'fused' if self.fusion else 'not fused'}"


def measure(plan: Plan, show: Callable[[str], None]) -> Iterator[Row]:
    """Measures everything; yields the row of each size as soon as it is measured.

    Args:
        plan: What to measure.
        show: Called with a line about what is being done.

    Raises:
        HvdFtError: A backend failed.
    """
    show(f"starting {plan.ranks} ranks of {', then '.join(plan.backends)}")
    # An empty variable would be read as 0 by Horovod, so the usual threshold is left unset.
    env = {} if plan.fusion else {"HOROVOD_FUSION_THRESHOLD": "0"}
    arguments = ["--dtype", plan.dtype, "--op", plan.op, "--tensors", str(plan.tensors)]
    worker = WORKERS[plan.framework]
    with backends.started(plan.backends, plan.ranks, worker, arguments, env) as started:
        for place, size in enumerate(plan.sizes):
            count = size // np.dtype(plan.dtype).itemsize
            row = Row(size, count, plan.ranks, {name: Times() for name in plan.backends})
            for repeat in range(plan.repeats):
                # The backend that goes first alternates too.
                order = started if (place + repeat) % 2 == 0 else started[::-1]
                for backend in order:
                    show(f"{size} bytes: {backend.name}, round {repeat + 1} of {plan.repeats}")
                    _one_round(backend, plan, count, row.times[backend.name])
            yield row
        show("ending")


def _one_round(backend: backends.Backend, plan: Plan, count: int, times: Times) -> None:
    request = {
        "do": "measure",
        "copies": backend.name == COPIES,
        "count": count,
        "iterations": plan.iterations,
        "warmup": plan.warmup,
    }
    with backend.running():
        answers = backend.ask(request, plan.round_limit_seconds)
    times.add_round([answer["seconds"] for answer in answers])
    times.wrong += sum(answer["wrong"] for answer in answers)
