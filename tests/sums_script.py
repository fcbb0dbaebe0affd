"""Sums over the core's C ABI, without TensorFlow: many large ops in little time.

    sums_script.py OPS BYTES [SNAPSHOT_EVERY]

In op i rank r gives 2^r · (i mod 7 + 1) in every element, so a contribution that is there twice, or
missing, shows in the sum. A wrong result ends the script with 3. At the end it prints a hash of all
results; if TIMES names a folder, it leaves there when each op was done, CLOCK_MONOTONIC.
"""
        while True:
            ticket = core.hvdft_worker_ticket()
            term = core.hvdft_worker_term()  # before the log: see hvd_ft.h
            if core.hvdft_worker_log_length() > self.next:
                return
            if not core.hvdft_worker_joined():
                core.hvdft_worker_join(self.next)
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
    ops, size, *rest = map(int, sys.argv[1:])
    script = Script(ops, size, *rest or [0])
    script.run()
    incarnation = core.hvdft_worker_incarnation()
    if folder := os.environ.get("TIMES"):
        Path(folder, f"{script.rank}.{incarnation}").write_text(" ".join(map(str, script.times)))
    os.write(1, f"SUMS {script.rank} {incarnation} {script.hash:08x}\n".encode())
    core.hvdft_worker_leave()


main()
