"""Sums over the core's C ABI, without TensorFlow: many large ops in little time.

    sums_script.py OPS BYTES [SNAPSHOT_EVERY [SECONDS]]

In op i rank r gives 2^r · (i mod 7 + 1) in every element, so a contribution that is there twice, or
missing, shows in the sum. A wrong result ends the script with 3. At the end it prints a hash of all
results. Each op is followed by so many seconds of what a training would compute.
"""

import ctypes
import os
import struct
import sys
import time
import zlib
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p

import numpy as np

REDUCE, FLOAT32, AGAIN = 1, 7, -1
COPY = ctypes.CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, c_void_p)


class Op(ctypes.Structure):
    _fields_ = (
        *((name, c_uint32) for name in ("kind", "dtype", "reduce", "root")),
        ("result_bytes", c_uint64),
        ("block_bytes", c_void_p),
        ("response", c_char_p),
        ("response_bytes", c_uint64),
        ("signature", c_char_p),
        ("viewed", c_uint32),
        ("factor", ctypes.c_double),
    )


class Copies(ctypes.Structure):
    _fields_ = (("copy_in", COPY), ("copy_out", COPY), ("context", c_void_p))


core = ctypes.CDLL(os.environ["HOROVOD_FT_LIBRARY"])
for _name in ("term", "log_length", "cursor"):
    getattr(core, f"hvdft_worker_{_name}").restype = c_uint64
core.hvdft_worker_ticket.restype = c_uint32
core.hvdft_worker_take.restype = c_int64
core.hvdft_worker_take.argtypes = [c_int, c_uint64, POINTER(c_void_p)]
core.hvdft_worker_wait.argtypes = [c_uint32, c_int]
core.hvdft_worker_announce.argtypes = [c_uint64, c_char_p, c_uint64]
core.hvdft_worker_propose.argtypes = [c_uint64, POINTER(Op), c_int]
core.hvdft_worker_begin.argtypes = [c_uint64, POINTER(Copies)]
for _name in ("enter", "executed", "set_step"):
    getattr(core, f"hvdft_worker_{_name}").argtypes = [c_uint64]
core.hvdft_worker_pend.argtypes = [c_int64]
core.hvdft_worker_snapshot_room.argtypes = [c_int, c_uint64, POINTER(c_void_p)]
core.hvdft_worker_snapshot_publish.argtypes = [c_int, c_uint64, c_uint64]
core.hvdft_worker_snapshot_get.argtypes = [
    c_int,
    POINTER(c_void_p),
    POINTER(c_uint64),
    POINTER(c_uint64),
]
core.hvdft_failpoint.argtypes = [c_int, c_uint64]


def check(code: int) -> int:
    if code < 0:
        core.hvdft_error.restype = c_char_p
        sys.exit(f"{code}: {core.hvdft_error().decode()}")
    return code


class Script:
    def __init__(self, ops: int, size: int, every: int, seconds: float) -> None:
        check(core.hvdft_worker_open())
        self.rank, self.ranks = core.hvdft_worker_rank(), core.hvdft_worker_size()
        self.ops, self.size, self.every, self.seconds = ops, size, every, seconds
        self.next, self.hash = 0, 0
        self.term, self.announced, self.counted = -1, -1, 0
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
            core.hvdft_failpoint(12, self.next)
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
        blob = c_void_p()
        for rank in range(1, self.ranks):
            while core.hvdft_worker_take(rank, self.term, byref(blob)) == 1:
                self.counted += 1
        if self.counted < self.ranks:
            return
        assert self.counted == self.ranks
        self.counted = 0
        name = f"op {self.next}".encode()
        op = Op(REDUCE, FLOAT32, 0, 0, self.size, None, b"", 0, name)
        check(core.hvdft_worker_propose(self.term, byref(op), 1))

    def execute(self) -> None:
        factor = float(self.next % 7 + 1)
        self.input[:] = 2.0**self.rank * factor
        source, target = self.input.ctypes.data, self.result.ctypes.data

        def give(_context: int, start: int, count: int, to: int) -> None:
            ctypes.memmove(to, source + (start or 0), count)

        def take(_context: int, start: int, count: int, result: int) -> None:
            ctypes.memmove(target + (start or 0), result, count)

        copies = Copies(COPY(give), COPY(take), None)
        check(core.hvdft_worker_begin(self.next, byref(copies)))
        while True:
            ticket = core.hvdft_worker_ticket()
            if not check_again(code := core.hvdft_worker_advance()) and code == 1:
                break
            check(core.hvdft_worker_wait(ticket, 10_000))
        core.hvdft_worker_executed(self.next)
        if not (self.result == (2.0**self.ranks - 1) * factor).all():
            os.write(2, f"WRONG sum in op {self.next} on rank {self.rank}\n".encode())
            core.hvdft_worker_orderly_exit()
            sys.exit(3)
        self.hash = zlib.crc32(self.result[:1024], self.hash)

    def snapshot(self) -> None:
        room, content = c_void_p(), struct.pack("QQ", self.next, self.hash)
        check(core.hvdft_worker_snapshot_room(0, len(content), byref(room)))
        ctypes.memmove(room, content, len(content))
        check(core.hvdft_worker_snapshot_publish(0, len(content), core.hvdft_worker_cursor()))

    def restore(self) -> None:
        begin = c_uint64()
        check(core.hvdft_worker_loop_begin(0, byref(begin)))
        data, count, place = c_void_p(), c_uint64(), c_uint64()
        got = core.hvdft_worker_snapshot_get(0, byref(data), byref(count), byref(place))
        if got == 1:
            self.next, self.hash = struct.unpack("QQ", ctypes.string_at(data, count.value))
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
