"""The worker of `hvdft bench allreduce`: run with `python -m`, the same for every backend.

Without an agent `hvd_ft.tensorflow` is stock Horovod and a State keeps nothing.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft.tools.bench import copies, driver_requests, known

# Number of times that the tensors are reduced in one call of a TensorFlow function, one after the
# other: in Python the call, and passing 64 tensors, takes longer than an allreduce.
IN_A_ROW = 8

_OPS = {
    "sum": hvd.Sum,
    "average": hvd.Average,
    "min": hvd.Min,
    "max": hvd.Max,
    "prod": hvd.Product,
}

Tensors = list[tf.Tensor]


@dataclass(frozen=True)
class Case:
    """The tensors and the step that measure one size.

    Attributes:
        count: Elements of each tensor.
        step: Allreduces tensors `IN_A_ROW` times.
        phases: Two sets of inputs, used in turn.
    """

    count: int
    step: Callable[[Tensors], Tensors]
    phases: tuple[Tensors, Tensors]


class Measurement:
    """Allreduces of one series: the type, the operation and the number of tensors are fixed."""

    def __init__(self, dtype: str, op: str, tensors: int) -> None:
        self._dtype, self._op, self._tensors = dtype, op, tensors
        self._state = hvd.State(snapshot_steps=1)
        self._state.sync()
        self._latest: Case | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measures one round: seconds of each iteration, and how many elements are wrong."""
        case = self._case(request["count"] // self._tensors)
        if request["copies"]:
            return self._copies(case, request["warmup"], request["iterations"])
        inputs, others = case.phases
        self._iterate(case.step, inputs, request["warmup"])
        seconds, outputs = self._iterate(case.step, inputs, request["iterations"])
        wrong = self._wrong(outputs, case.count, phase=0)
        # The same inputs give the same results, so a stale result would go unnoticed: check once
        # more with others.
        wrong += self._wrong(self._iterate(case.step, others, 1)[1], case.count, phase=1)
        return {"seconds": seconds, "wrong": wrong}

    def _case(self, count: int) -> Case:
        """Returns the case of this size; it is traced once, which takes longer than a round."""
        if self._latest is None or self._latest.count != count:
            phases = self._inputs(count, phase=0), self._inputs(count, phase=1)
            self._latest = Case(count, self._step(count), phases)
        return self._latest

    def _copies(self, case: Case, warmup: int, iterations: int) -> dict[str, Any]:
        """Measures the copies alone, until the last rank has made its own, as for an allreduce."""
        inputs = [each.numpy() for each in case.phases[0]]
        outputs = [np.zeros_like(each) for each in inputs]
        step = copies.copying(inputs, outputs)

        def several(_: Tensors) -> Tensors:
            for _repeat in range(IN_A_ROW):
                step()
            return []

        self._iterate(several, [], warmup)
        own = tf.constant(self._iterate(several, [], iterations)[0], tf.float64)
        seconds = hvd.allreduce(own, op=hvd.Max, name="slowest").numpy().tolist()
        wrong = sum(int(np.count_nonzero(a != b)) for a, b in zip(inputs, outputs, strict=True))
        return {"seconds": seconds, "wrong": wrong}

    def _iterate(
        self, step: Callable[[Tensors], Tensors], inputs: Tensors, times: int
    ) -> tuple[list[float], Tensors]:
        seconds: list[float] = []
        outputs: Tensors = []
        for number in range(times):
            begin = time.perf_counter()
            outputs = step(inputs)
            seconds.append((time.perf_counter() - begin) / IN_A_ROW)
            if number + 1 < times:
                outputs = []  # gradients do not outlive their step either
            self._state.commit()  # cuts the op log, or the results would fill the arena
            # The ranks leave this together: a late one would lengthen the next iteration.
            hvd.allreduce(tf.zeros([1]), name="together")
        return seconds, outputs

    def _step(self, count: int) -> Callable[[Tensors], Tensors]:
        def one(inputs: Tensors, repeat: int) -> Tensors:
            return [
                hvd.allreduce(each, op=_OPS[self._op], name=f"bench.{count}.{repeat}.{number}")
                for number, each in enumerate(inputs)
            ]

        def several(inputs: Tensors) -> Tensors:
            outputs = one(inputs, 0)
            for repeat in range(1, IN_A_ROW):
                # One node between the ops of a round and those of the next: edges cost the executor
                # time.
                with tf.control_dependencies([tf.group(outputs)]):
                    outputs = one(inputs, repeat)
            return outputs

        function: Callable[[Tensors], Tensors] = tf.function(several, autograph=False)
        return function

    def _inputs(self, count: int, phase: int) -> Tensors:
        return [
            tf.constant(
                known.contribution(
                    self._op, self._dtype, count, hvd.rank(), hvd.size(), phase=phase + number
                )
            )
            for number in range(self._tensors)
        ]

    def _wrong(self, outputs: Tensors, count: int, phase: int) -> int:
        return sum(
            known.count_wrong(
                self._op,
                output.numpy(),
                known.result(self._op, self._dtype, count, hvd.size(), phase=phase + number),
            )
            for number, output in enumerate(outputs[: self._tensors])
        )


def prepare_tensorflow() -> None:
    """Applies the settings that all backends share, before anything is computed."""
    tf.config.threading.set_intra_op_parallelism_threads(1)  # several ranks share the CPUs
    tf.config.threading.set_inter_op_parallelism_threads(1)
    # TensorFlow would prune an allreduce whose result is never read: here the next ones only wait
    # for it.
    tf.config.optimizer.set_experimental_options({"dependency_optimization": False})


def main() -> None:
    """Serves the driver until it has no more requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket")
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--op", required=True)
    parser.add_argument("--tensors", type=int, required=True)
    options = parser.parse_args()
    channel = driver_requests.connect(options.socket)
    prepare_tensorflow()
    hvd.init()
    measurement = Measurement(options.dtype, options.op, options.tensors)
    driver_requests.serve(channel, hvd.rank(), measurement.answer)


if __name__ == "__main__":
    main()
