"""Sums over the core's C ABI, without TensorFlow: many large ops in little time.

    sums_script.py OPS BYTES [SNAPSHOT_EVERY [SECONDS]]

In op i rank r gives 2^r · (i mod 7 + 1) times 1 to 7, another one in each cache line, so a
contribution that is there twice, missing, or in another place shows in the sum. A wrong result ends
the script with 3. At the end it prints a hash of all results. Each op is followed by so many
seconds of what a training would compute.

With HOROVOD_FT_ABLATE=network ranks get the sum of their node's; and every third op is a broadcast,
which the network carries all the same.
"""

import os
import struct
import sys
import time
import zlib
from typing import Any

import numpy as np

from hvd_ft.native import abi
from hvd_ft.native.abi import ffi

AGAIN = abi.constant("HVDFT_AGAIN")
core = abi.library()


def check(code: int) -> int:
    if code < 0:
        sys.exit(f"{code}: {abi.error()}")
    return code


class Script:
    def __init__(self, ops: int, size: int, every: int, seconds: float) -> None:
        check(core.hvdft_worker_open())
        self.rank, self.ranks = core.hvdft_worker_rank(), core.hvdft_worker_size()
        self.ops, self.size, self.every, self.seconds = ops, size, every, seconds
        self.next, self.hash = 0, 0
        self.ablated = os.environ.get("HOROVOD_FT_ABLATE") == "network"
        self.term, self.announced, self.counted = -1, -1, 0
        self.pattern = (np.arange(size // 4) // 16 % 7 + 1).astype(np.float32)
        self.input, self.result = np.zeros(size // 4, np.float32), np.zeros(size // 4, np.float32)

    def run(self) -> None:
        if self.every:
            self.restore()
        while self.next < self.ops:
            core.hvdft_worker_pend(1)
            self.agree()
            self.execute()
            core.hvdft_worker_pend(-1)
            self.next += 1
            core.hvdft_worker_set_step(self.next)
            core.hvdft_failpoint(abi.constant("HVDFT_AT_STEP"), self.next)
            time.sleep(self.seconds)
            if self.every and self.next % self.every == 0:
                self.snapshot()

    def agree(self) -> None:
        """Waits until the log has the next op; negotiates as tests/core/kill_test.cc does."""
        while True:
            ticket = core.hvdft_worker_ticket()
            term = core.hvdft_worker_term()  # before the log: see hvd_ft.h
            if core.hvdft_worker_log_length() > self.next:
                return
            if not core.hvdft_worker_entered():
                core.hvdft_worker_enter(self.next)
            else:
                core.hvdft_worker_caught_up()
                if term != self.term:
                    self.term, self.announced, self.counted = term, -1, 0
                self.announce()
                if self.rank == 0:
                    self.coordinate()
            check(core.hvdft_worker_wait(ticket, 10_000))

    def announce(self) -> None:
        if self.announced == self.next:
            return
        if self.rank == 0:
            self.counted += 1
        elif check_again(core.hvdft_worker_announce(self.term, b"g", 1)):
            return
        self.announced = self.next

    def coordinate(self) -> None:
        blob = ffi.new("const void **")
        for rank in range(1, self.ranks):
            while core.hvdft_worker_take(rank, self.term, blob) == 1:
                self.counted += 1
        if self.counted < self.ranks:
            return
        assert self.counted == self.ranks
        self.counted = 0
        name = ffi.new("char[]", f"op {self.next}".encode())
        op = ffi.new("hvdft_op *", {"result_bytes": self.size, "signature": name})
        op.kind, op.dtype = abi.constant("HVDFT_REDUCE"), abi.constant("HVDFT_FLOAT32")
        if self.broadcasts():
            op.kind, op.root = abi.constant("HVDFT_COPY"), self.root()
        check(core.hvdft_worker_propose(self.term, op, 1))

    def broadcasts(self) -> bool:
        return self.ablated and self.next % 3 == 2

    def root(self) -> int:
        return self.next % self.ranks

    def wanted(self) -> float:
        if self.broadcasts():
            return 2.0 ** self.root()
        return sum(2.0**rank for rank in self.summed())

    def summed(self) -> range:
        if not self.ablated:
            return range(self.ranks)
        if os.environ.get("HOROVOD_FT_TOPOLOGY") == "flat":
            return range(self.rank, self.rank + 1)
        first = self.rank - int(os.environ["HOROVOD_LOCAL_RANK"])
        return range(first, first + int(os.environ["HOROVOD_LOCAL_SIZE"]))

    def execute(self) -> None:
        factor = float(self.next % 7 + 1)
        np.multiply(self.pattern, 2.0**self.rank * factor, out=self.input)
        source, target = self.input.view(np.uint8), self.result.view(np.uint8)

        @ffi.callback("void(void *, uint64_t, uint64_t, void *)")
        def give(_context: Any, start: int, count: int, to: Any) -> None:
            ffi.memmove(to, source[start : start + count], count)

        @ffi.callback("void(void *, uint64_t, uint64_t, const void *)")
        def take(_context: Any, start: int, count: int, result: Any) -> None:
            ffi.memmove(target[start : start + count], result, count)

        copies = ffi.new("hvdft_copies *", {"copy_in": give, "copy_out": take})
        check(core.hvdft_worker_begin(self.next, copies))
        while True:
            ticket = core.hvdft_worker_ticket()
            if not check_again(code := core.hvdft_worker_advance()) and code == 1:
                break
            check(core.hvdft_worker_wait(ticket, 10_000))
        core.hvdft_worker_executed(self.next)
        if not (self.result == self.pattern * (self.wanted() * factor)).all():
            os.write(2, f"WRONG sum in op {self.next} on rank {self.rank}\n".encode())
            core.hvdft_worker_orderly_exit()
            sys.exit(3)
        self.hash = zlib.crc32(self.result[:1024], self.hash)

    def snapshot(self) -> None:
        room, content = ffi.new("void **"), struct.pack("QQ", self.next, self.hash)
        cursor = core.hvdft_worker_cursor()
        check(core.hvdft_worker_snapshot_begin(0, cursor, cursor))
        check(core.hvdft_worker_snapshot_room(0, len(content), room))
        ffi.memmove(room[0], content, len(content))
        about = {"cut": cursor, "position": cursor, "bytes": len(content)}
        check(core.hvdft_worker_snapshot_deliver(0, ffi.new("hvdft_snapshot *", about)))

    def restore(self) -> None:
        check(core.hvdft_worker_loop_begin(0, ffi.new("uint64_t *")))
        data, about = ffi.new("const void **"), ffi.new("hvdft_snapshot *")
        got = core.hvdft_worker_snapshot_get(0, data, about)
        if got == 1:
            self.next, self.hash = struct.unpack("QQ", ffi.buffer(data[0], about.bytes))
            check(core.hvdft_worker_jump(0))


def check_again(code: int) -> bool:
    return code == AGAIN or check(code) < 0


def main() -> None:
    ops, size, *rest = sys.argv[1:]
    every, seconds = [*rest, "0", "0"][:2]
    script = Script(int(ops), int(size), int(every), float(seconds))
    script.run()
    incarnation = core.hvdft_worker_incarnation()
    os.write(1, f"SUMS {script.rank} {incarnation} {script.hash:08x}\n".encode())
    core.hvdft_worker_leave()


main()
