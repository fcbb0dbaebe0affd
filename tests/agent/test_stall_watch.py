"""When the watch over a worker asks for its stacks, warns, and has it killed."""

from typing import Any

import pytest

from hvd_ft.agent import stall_watch
from hvd_ft.agent.stacks import StackReader
from hvd_ft.agent.stall_watch import StallWatch
from hvd_ft.job.settings import Settings
from hvd_ft.native.types import State, Watch

TRACE = """Current thread 0x01 (most recent call first):
  File "train.py", line {} in step
  File "train.py", line 9 in <module>
"""


class Machine:
    """A rank that others wait for, on a clock of the test's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Any, **limits: float) -> None:
        self.now = 1000.0
        self.line = 1
        self.late = ""  # output of a worker that is no longer waited for
        self.executed = 0
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.killed: list[str] = []
        self.size = 2
        monkeypatch.setattr(stall_watch.time, "monotonic", lambda: self.now)
        self.reader = StackReader(str(folder), 0)
        observer: Any = self
        self.watch_of = StallWatch(
            0,
            Settings(**limits),  # type: ignore[arg-type]
            observer,
            self.reader,
            ask=self.ask,
            warn=self.warnings.append,
            note=self.notes.append,
        )
        self.watch_of.begin()

    def watch(self, rank: int) -> Watch:
        """What the job's observer says of a rank: 0 computes, 1 waits for it."""
        pending = 1 if rank == 1 else 0
        return watch_of(pending=pending, executed=self.executed)

    def ask(self) -> None:
        self.write(TRACE.format(self.line))

    def write(self, text: str) -> None:
        with open(self.reader.path, "w", encoding="ascii") as pipe:
            pipe.write(text)

    def run(self, seconds: float) -> None:
        """Lets time pass, and the watch look whenever it wants to."""
        end = self.now + seconds
        while self.watch_of.look_at <= end:
            self.now = max(self.now, self.watch_of.look_at)
            if stuck := self.watch_of.look(0):
                self.killed.append(str(stuck))
            elif self.watch_of._asked:
                self.watch_of.on_readable()
        self.now = end


def watch_of(*, pending: int, executed: int) -> Watch:
    values = dict.fromkeys(Watch.__dataclass_fields__, 0)
    values |= {"pending": pending, "executed": executed}
    return Watch(**{**values, "state": State.RUNNING, "asleep": pending > 0})  # type: ignore[arg-type]


def test_a_stall_is_told_ever_less_often_with_the_stack_of_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    machine = Machine(monkeypatch, tmp_path, stall_warning_seconds=10, hang_timeout_seconds=0)
    machine.run(25)
    assert [text.split(":")[0] for text in machine.warnings] == [
        "rank 0 has kept rank 1 waiting for 10 s",
        "rank 0 has kept rank 1 waiting for 20 s",
    ]
    assert "train.py:1 in step" in machine.warnings[0]
    machine.run(25)
    assert len(machine.warnings) == 3  # after 40 s; not at every look
    machine.executed += 1  # it continues, and stalls again elsewhere
    machine.line = 5
    machine.write("what came too late\n")
    machine.watch_of.on_readable()
    machine.run(15)
    assert machine.warnings[3].startswith("rank 0 has kept rank 1 waiting for 10 s")
    assert "train.py:5 in step" in machine.warnings[3]
    assert machine.notes[3] == TRACE.format(5)
    assert not machine.killed


def test_what_is_killed_has_its_stack_in_words_and_notes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    machine = Machine(monkeypatch, tmp_path, stall_warning_seconds=0, hang_timeout_seconds=10)
    machine.run(30)
    assert len(machine.killed) == 1
    assert "rank 1 waited 10.0 s for it; it is at train.py:1 in step" in machine.killed[0]
    assert machine.notes == [TRACE.format(1)]
    assert not machine.warnings
