"""The event loop: which callbacks are called, when, and which no more."""

import os
import socket
import tempfile

from hvd_ft.system.event_loop import EventLoop


class Clock:
    """A clock of the test's own."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_who_is_ready_is_called_and_nobody_else() -> None:
    ours, theirs = socket.socketpair()
    called: list[str] = []
    with EventLoop() as loop, ours, theirs:
        loop.watch(ours, lambda: called.append("read"))
        watch = loop.watch(theirs, on_writable=lambda: called.append("write"))
        loop.run_once(0)
        assert called == ["write"]
        watch.set()
        loop.run_once(0)
        assert called == ["write"]
        theirs.send(b"x")
        loop.run_once()
        assert called == ["write", "read"]


def test_the_end_of_the_other_side_makes_readable() -> None:
    ours, theirs = socket.socketpair()
    called: list[bytes] = []
    with EventLoop() as loop, ours:
        loop.watch(ours, lambda: called.append(ours.recv(1)))
        theirs.close()
        loop.run_once()
    assert called == [b""]


def test_a_regular_file_can_be_watched() -> None:
    """Standard output may be one."""
    called: list[int] = []
    with EventLoop() as loop, tempfile.TemporaryFile() as file:
        loop.watch(file, on_writable=lambda: called.append(1))
        loop.run_once()
    assert called == [1]


def test_who_is_ended_in_this_round_is_not_called_in_it() -> None:
    pipes = [os.pipe() for _ in range(2)]
    called: list[int] = []
    with EventLoop() as loop:
        watches = [loop.watch(reader) for reader, _ in pipes]

        def end_both(number: int) -> None:
            called.append(number)
            for watch in watches:
                watch.end()

        for number, (_, writer) in enumerate(pipes):
            os.write(writer, b"x")
            watches[number].set(lambda number=number: end_both(number))  # type: ignore[misc]
        loop.run_once()
        assert len(called) == 1
    for pipe in pipes:
        for end in pipe:
            os.close(end)


def test_a_descriptor_that_is_watched_anew_belongs_to_the_new_watch() -> None:
    reader, writer = os.pipe()
    called: list[str] = []
    with EventLoop() as loop:
        old = loop.watch(reader, lambda: called.append("old"))
        loop.watch(reader, lambda: called.append("new"))
        old.end()
        os.write(writer, b"x")
        loop.run_once(5.0)
    assert called == ["new"]
    os.close(reader)
    os.close(writer)


def test_a_timer_is_called_once_at_its_time() -> None:
    clock = Clock()
    called: list[float] = []
    with EventLoop(clock) as loop:
        timer = loop.timer(lambda: called.append(clock.now))
        timer.set(101.0)
        loop.run_once(0)
        assert called == []
        clock.now = 101.0
        loop.run_once()
        loop.run_once(0)
        assert called == [101.0]
        timer.set(102.0)
        timer.clear()
        clock.now = 103.0
        loop.run_once(0)
        assert called == [101.0]


def test_a_timer_that_another_one_clears_is_not_called() -> None:
    clock = Clock()
    called: list[str] = []
    with EventLoop(clock) as loop:

        def on_first() -> None:
            called.append("first")
            second.clear()

        first = loop.timer(on_first)
        second = loop.timer(lambda: called.append("second"))
        first.set(100.0)
        second.set(100.0)
        loop.run_once()
    assert called == ["first"]


def test_a_timeout_ends_with_its_block() -> None:
    clock = Clock()
    called: list[int] = []
    with EventLoop(clock) as loop:
        with loop.timeout(lambda: called.append(1), 100.0):
            loop.run_once()
        with loop.timeout(lambda: called.append(2), 101.0):
            pass
        clock.now = 102.0
        loop.run_once(0)
    assert called == [1]


def test_it_runs_until_it_need_not() -> None:
    clock = Clock()
    with EventLoop(clock) as loop:
        again = loop.timer(lambda: again.set(clock.now))
        again.set(0.0)
        rounds = iter([False, False, True])
        loop.run(lambda: next(rounds))
        assert next(rounds, None) is None
