"""Trains in whole numbers (arithmetic.py), with snapshots, checkpoints and rosters, without a
framework: a process starts in half a second.

    ranks_script.py END

It goes on until the file END is there. Rank 0 looks for it, and tells the others with its part of
the sum, so all of them end at the same step, also in a replay. At the beginning rank 0 says when
ten steps are done, and then now and then. At the end each rank prints what it has.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from arithmetic import beginning, contribution, digest, longer, own_next

from hvd_ft import native
from hvd_ft.native import abi
from hvd_ft.native.abi import ffi
from hvd_ft.system.say import say
from hvd_ft.worker import rosters
from hvd_ft.worker.exit_reason import keep_last_words
from hvd_ft.worker.training_loop import TrainingLoop

AGAIN = abi.constant("HVDFT_AGAIN")
EVERY = 5  # steps from one snapshot to the next
STEP_SECONDS = 0.02  # which a step computes
FEW, MORE = 10, 50  # steps, after which rank 0 says that it trains, and then says it again
LAST = 0  # the number in a sum that is not 0 in the last step
core = abi.library()


class Ops:
    """Collectives of the present ranks, one after the other, over the core's C ABI."""

    def __init__(self, worker: native.Worker) -> None:
        self._worker = worker
        self._term, self._announced, self._counted = -1, -1, 0

    def sum(self, array: np.ndarray) -> np.ndarray:
        """Returns the sum of the present ranks' arrays."""
        return self._run("HVDFT_REDUCE", array, "HVDFT_FLOAT64")

    def broadcast(self, data: bytes) -> bytes:
        """Returns rank 0's bytes."""
        (size,) = self._run("HVDFT_COPY", np.array([len(data)], np.uint64), "HVDFT_UINT64")
        room = np.zeros(int(size), np.uint8)
        room[: len(data)] = np.frombuffer(data, np.uint8)
        return self._run("HVDFT_COPY", room, "HVDFT_UINT8").tobytes()

    def roster(self, number: int) -> bool:
        """Begins a roster, as `rosters.register` wants it."""
        self._run("HVDFT_ROSTER", np.zeros(0, np.uint8), "HVDFT_UINT8", number)
        return True

    def _run(self, kind: str, array: np.ndarray, dtype: str, root: int = 0) -> np.ndarray:
        result = np.zeros_like(array)
        number = int(core.hvdft_worker_next())
        core.hvdft_worker_pend(1)
        op = {"kind": abi.constant(kind), "dtype": abi.constant(dtype), "root": root}
        self._agree(number, {**op, "result_bytes": array.nbytes, "common": 1, "factor": 1.0})
        source, target = array.view(np.uint8), result.view(np.uint8)

        @ffi.callback("void(void *, uint64_t, uint64_t, void *)")
        def give(_context: Any, start: int, count: int, to: Any) -> None:
            ffi.memmove(to, source[start : start + count], count)

        @ffi.callback("void(void *, uint64_t, uint64_t, const void *)")
        def take(_context: Any, start: int, count: int, summed: Any) -> None:
            ffi.memmove(target[start : start + count], summed, count)

        copies = ffi.new("hvdft_copies *", {"copy_in": give, "copy_out": take})
        abi.checked(core.hvdft_worker_begin(number, copies))
        while True:
            ticket = core.hvdft_worker_ticket()
            code = core.hvdft_worker_advance()
            if code == 1:
                break
            if code != AGAIN:
                abi.checked(code)
            abi.checked(core.hvdft_worker_wait(ticket, 10_000))
        abi.checked(core.hvdft_worker_executed(number))
        core.hvdft_worker_pend(-1)
        return result

    def _agree(self, number: int, op: dict[str, Any]) -> None:
        """Waits until the log has the op with this number."""
        while True:
            ticket = core.hvdft_worker_ticket()
            term = core.hvdft_worker_term()  # before the log: see hvd_ft.h
            if core.hvdft_worker_log_length() > number:
                return
            if not core.hvdft_worker_entered():
                abi.checked(core.hvdft_worker_enter(number))
            else:
                core.hvdft_worker_caught_up()
                if term != self._term:
                    self._term, self._announced, self._counted = term, -1, 0
                self._announce(number)
                if self._worker.rank == 0:
                    self._coordinate(number, op)
            abi.checked(core.hvdft_worker_wait(ticket, 10_000))

    def _announce(self, number: int) -> None:
        if self._announced == number:
            return
        if self._worker.rank == 0:
            self._counted += 1
        else:
            code = core.hvdft_worker_announce(self._term, b"g", 1)
            if code == AGAIN:
                return
            abi.checked(code)
        self._announced = number

    def _coordinate(self, number: int, op: dict[str, Any]) -> None:
        present, blob = self._worker.present(), ffi.new("const void **")
        for rank in present[1:]:
            while core.hvdft_worker_take(rank, self._term, blob) == 1:
                self._counted += 1
        if self._counted < len(present):
            return
        self._counted = 0
        name = ffi.new("char[]", f"op {number}".encode())
        proposed = ffi.new("hvdft_op *", {**op, "signature": name})
        blocks = [0] * self._worker.size
        for rank in present:
            blocks[rank] = op["result_bytes"]
        kept = ffi.new("uint64_t[]", blocks)
        if len(present) < self._worker.size and op["kind"] == abi.constant("HVDFT_REDUCE"):
            proposed.block_bytes = kept
        abi.checked(core.hvdft_worker_propose(self._term, proposed, 1))


class Training:
    """The state of a rank, and its steps."""

    def __init__(self, worker: native.Worker, end: Path) -> None:
        self._worker, self._end = worker, end
        self._ops = Ops(worker)
        self.weights, self.own = beginning(), 0
        self.step, self.stretches = 0, list[list[int]]()
        rosters.register(self._ops.roster, lambda: True, self._ops.broadcast)

    def train(self) -> None:
        loop = TrainingLoop(self._worker, EVERY, 0.01)
        if loop.begin() is not None:
            arrays, values = loop.snapshot()
            self.weights = arrays["weights"].copy()
            self.own, self.stretches = values["own"], values["stretches"]
            self.step = values["step"]
            loop.jump()
        if loop.returned:
            self._keep(loop)
        begun = self.step
        while not self._one_step():
            self._boundary(loop)
            if loop.tells and self.step == begun + FEW:
                say(f"{FEW} steps are done")
            elif self._worker.rank == 0 and self.step % MORE == 0:
                say(f"{self.step} steps are done")
        loop.end()

    def _one_step(self) -> bool:
        """Returns whether it was the last one."""
        present = self._worker.present()
        rank, ranks = present.index(self._worker.rank), len(present)
        time.sleep(STEP_SECONDS)
        last = float(self._worker.rank == 0 and self._end.exists())
        mine = np.append(last, contribution(self.weights, rank, self.step))
        summed = self._ops.sum(mine)
        self.own = own_next(self.own, rank, self.step)
        self.weights, self.stretches = summed[1:].copy(), longer(self.stretches, ranks)
        self.step += 1
        return bool(summed[LAST])

    def _boundary(self, loop: TrainingLoop) -> None:
        loop.set_step(self.step)
        loop.begin_roster(self.step, self._contents)
        self._keep(loop)

    def _keep(self, loop: TrainingLoop) -> None:
        if loop.returned and self.step == 0:
            return
        if loop.wants_snapshot(self.step):
            loop.write(self.step, self._contents)

    def _contents(self) -> rosters.Contents:
        values = {"own": self.own, "stretches": self.stretches}
        return {"weights": self.weights.copy()}, values

    def tell(self) -> None:
        found = {
            "rank": self._worker.present().index(self._worker.rank),
            "digest": digest(self.weights),
            "own": self.own,
            "stretches": self.stretches,
        }
        os.write(1, f"END {json.dumps(found)}\n".encode())


def main() -> None:
    keep_last_words()
    worker = native.worker()
    assert worker is not None
    training = Training(worker, Path(sys.argv[1]))
    training.train()
    training.tell()
    core.hvdft_worker_leave()


if __name__ == "__main__":
    main()
