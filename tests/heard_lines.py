"""The launcher's ends of life-lines, and who is on them, for tests of both sides."""

from collections.abc import Collection
from typing import Protocol

from hvd_ft.job.lifeline import LifeLines
from hvd_ft.job.lifeline_messages import (
    AgentLost,
    Answer,
    Ask,
    ForReport,
    FromShim,
    Lease,
    Note,
    Over,
    ShimStatus,
)
from hvd_ft.launcher.machine.actions import Actions, EndLine, Send
from hvd_ft.launcher.machine.shim_roll import ShimRoll
from hvd_ft.system.event_loop import EventLoop


class Gate(Protocol):
    """Says which shims belong to the job, and grants leases."""

    def admits(self, shim: ShimStatus) -> bool: ...

    def grants(self, shim: ShimStatus) -> bool: ...


class HeardLines:
    """Lines whose shims are on a roll, as the machine has it."""

    def __init__(self, loop: EventLoop, gate: Gate | None = None) -> None:
        self.gate = gate
        self.answers: list[tuple[str, Answer]] = []
        self.lost_agents: list[AgentLost] = []
        self._out = Actions()
        self.roll = ShimRoll(self._out)
        self.lines = LifeLines(loop, "127.0.0.1", 20.0, self)

    @property
    def address(self) -> str:
        return self.lines.address

    @property
    def shims(self) -> list[ShimStatus]:
        return self.roll.shims

    def ask(self, number: int, silent: Collection[str] = ()) -> None:
        self.roll.ask(Ask(number), silent, each=self.gate is not None)
        self._carry_out()

    def release(self, ranks: Collection[int]) -> list[str]:
        released = self.roll.release(ranks)
        self._carry_out()
        return released

    def forget(self, hosts: Collection[str]) -> None:
        self.roll.forget(hosts)
        self._carry_out()

    def close(self) -> None:
        self.lines.close()

    def said(self, line: int, message: FromShim) -> None:
        match message:
            case ShimStatus() if self.gate is None or self.gate.admits(message):
                self.roll.note(line, message)
            case ShimStatus():
                self.roll.turned_away(line)
                self.lines.send(line, Over(files_stay=False))
            case Answer(number) if shim := self.roll.shim(line):
                self.answers.append((shim.host, message))
                if self.gate and self.gate.grants(shim):
                    self.lines.send(line, Lease(number))
            case AgentLost():
                self.lost_agents.append(message)
            case ForReport(note):
                self.roll.tell_rank_0(Note(note))
        self._carry_out()

    def line_ended(self, line: int, *, hung_up: bool) -> None:
        self.roll.ended(line, hung_up=hung_up)

    def _carry_out(self) -> None:
        for action in self._out.take():
            match action:
                case Send(line, message):
                    self.lines.send(line, message)
                case EndLine(line):
                    self.lines.end(line)
