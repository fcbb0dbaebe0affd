"""Replays a scenario file against the launcher's machine: events in, actions out, as text.

A file begins with the job, and the limits where they are not the defaults:

    job hosts=n0:2,n1:2 spares=n3:2     also: size, least, may_shrink, led, warm, bootstrap, resume,
                                        generation, members, records; `questions`: show Ask,
                                        Answer, Lease
    settings fence_seconds=4.5

Then come events, one a line, each with its time. Below an event stand the actions that it causes
(`  > …`), and those that the ticks cause which follow until the next event (`  12.25 > …`). Ticks
come as the driver gives them: when `JobMachine.deadline` is over.

| event | |
|---|---|
| `begin` | |
| `hello 2-3 [on n1] [epoch 0] [generation 0]` | shims have opened lines; defaults: as started |
| `agents begin [2-3]` | agents of the present generation have begun, with lines as far as needed |
| `trains` | the same, of all ranks, and their workers are beyond the first step |
| `agents die [2-3] [lack …]` | shims have lost their agents; without ranks: where hosts answer |
| `all die [SIGTERM]` | agents where hosts answer, and then mpirun; by SIGKILL otherwise |
| `lost agent 2-3 [lack …]` | shims have lost their agents before there was anything to keep |
| `exits 0 [2-3]` | shims report the job's exit code |
| `hung up 2-3`, `torn 2-3` | lines have ended |
| `silent n1`, `answers n1` | whether the shims of a host answer questions: they do at first |
| `answer 2-3 [to 7]` | late: to the last question by default |
| `facts 0 node=0 links=1:successor:7/0/0` | what a node's leader answers from now on |
| `interrupted 0-1`, `for report 2` | shims say so |
| `flight part 0-1 [of 1]`, `record asked` | of the first record by default; SIGUSR2 |
| `reached n3`, `unreachable n3 why` | a probe's outcome |
| `published`, `not published` | the record's |
| `leads 12.5`, `deposed [12.5]` | the leadership, until when |
| `signal SIGINT` | |
| `workers begun=2 train`, `stopped`, `not stopped` | seen at ticks; mpirun |
| `left 2-3 may return` | whether ranks have left the running job: no, for good, may return |
| `change why size=4 withdrawn=n1 added=n3:2` | other hosts are due |
| `mpirun ends 0`, `mpirun ends SIGKILL`, `mpirun ends 1: lines / of output` | |
| `stood still` | no ticks until then: this process stood still |
| `that is all` | ticks until then |

The second line of a rank is called `2'`, the third `2''`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from scenario_words import (
    alike,
    in_words,
    read_facts,
    read_hosts,
    read_options,
    read_ranks,
    read_settings,
)

from hvd_ft.job.lifeline_messages import (
    AgentLost,
    Answer,
    Ask,
    FlightPart,
    ForReport,
    FromShim,
    Interrupted,
    Lease,
    NodeFacts,
    Over,
    ShimStatus,
)
from hvd_ft.job.page_messages import Kill
from hvd_ft.launcher.machine import actions as out
from hvd_ft.launcher.machine.job_machine import JobMachine, Phase
from hvd_ft.launcher.machine.seen import HostChange, MpirunSeen, WorkersSeen
from hvd_ft.native.types import Left

STANDS = "op 12, REDUCE_SCATTER step 2"
_LEFT = {"no": Left.NO, "for good": Left.FOR_GOOD, "may return": Left.MAY_RETURN}
_EVENT = re.compile(r"(\+?)([0-9.]+) (.+)")


@dataclass
class _Line:
    number: int
    name: str
    status: ShimStatus
    open: bool = True
    asked: int = 0  # the last question


def replay(text: str) -> str:
    """Returns a scenario with the actions that its events cause now."""
    found: list[str] = []
    remarks: list[str] = []
    world: _World | None = None
    header: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("  "):
            continue  # what came out another time
        if not line or line.startswith("#"):
            remarks.append(line)
            continue
        if event := _EVENT.fullmatch(line):
            world = world or _World(header)
            at = float(event[2]) + (world.now if event[1] else 0.0)
            if event[3] != "stood still":
                world.tick_until(at)
            found += [*world.take(), *remarks, line]
            world.event(at, event[3])
            found += world.take()
        else:
            kind, _, rest = line.partition(" ")
            header[kind] = rest
            found += [*remarks, line]
        remarks = []
    return "\n".join([*found, *remarks]) + "\n"


class _World:
    """The machine, and what its driver and its job's shims would do."""

    def __init__(self, header: dict[str, str]) -> None:
        self._job, self._questions = read_facts(header["job"])
        self.now = 0.0
        self._machine = JobMachine(self._job, read_settings(header.get("settings", "")), 0.0)
        self._begun = False
        self._written: list[str] = []
        self._lines: dict[int, _Line] = {}
        self._silent: set[str] = set()
        self._probes: set[str] = set()  # under way
        self._node_facts: dict[int, NodeFacts] = {}
        self._left = dict.fromkeys(range(self._job.size), Left.NO)
        self._workers, self._mpirun = WorkersSeen(), MpirunSeen()
        self._generation, self._members = self._job.generation, self._job.members
        self._over = False
        self._prefix = ""  # the time of a tick
        self._runs = False  # mpirun

    def take(self) -> list[str]:
        """Returns the lines written since the last call."""
        written, self._written = self._written, []
        return written

    def tick_until(self, at: float) -> None:
        """Lets time pass, with ticks when the machine wants them, but none at the end."""
        assert at >= self.now, f"{at} is before {self.now}"
        while self._begun and not self._over and self._machine.deadline < at:
            self._tick(self._machine.deadline)
            assert self._over or self._machine.deadline > self.now, f"no time passes at {self.now}"
        self._prefix = ""

    def event(self, at: float, text: str) -> None:
        """Lets an event happen."""
        self.now = at
        for form, happen in self._events():
            if found := re.fullmatch(form, text):
                happen(*found.groups())
                return
        raise ValueError(f"{text!r} is no event")

    def _tick(self, at: float) -> None:
        self.now = at
        self._prefix = f"{at:.3f}".rstrip("0").rstrip(".") + " "
        self._do(self._machine.time_passed(self._workers, self._mpirun, at))
        self._prefix = ""

    # -------------------------------------------------------------- events

    def _events(self) -> list[tuple[str, Callable[..., None]]]:
        ranks = r"([0-9,'-]+)"
        machine = self._machine
        return [
            ("begin", self._begin),
            (rf"hello {ranks}(?: on (\S+))?(?: epoch (\d+))?(?: generation (\d+))?", self._hello),
            (rf"agents begin(?: {ranks})?", self._agents_begin),
            ("trains", self._trains),
            (r"all die(?: (.+))?", self._all_die),
            (rf"agents die(?: {ranks})?(?: lack (.+))?", self._agents_die),
            (rf"exits (\d+)(?: {ranks})?", self._exits),
            (rf"(hung up|torn) {ranks}", self._line_ended),
            (r"(silent|answers) (\S+)", self._set_silent),
            (rf"answer {ranks}(?: to (\d+))?", self._answer),
            (r"facts (\d+) (.+)", self._set_facts),
            (rf"interrupted {ranks}", lambda r: self._each(r, Interrupted())),
            (rf"lost agent {ranks}(?: lack (.+))?", self._lost_agent),
            (rf"for report {ranks}", lambda r: self._each(r, ForReport({"type": "TOLD"}))),
            (
                rf"flight part {ranks}(?: of (\d+))?",
                lambda r, n: self._each(r, FlightPart(int(n or 1), {})),
            ),
            (
                r"page (\d+) kills (\d+)",
                lambda n, r: self._do(machine.kill_asked(Kill(int(n), int(r)), self.now)),
            ),
            ("record asked", lambda: self._do(machine.record_asked(self.now))),
            (r"reached (\S+)", self._probed),
            (r"unreachable (\S+) (.+)", self._probed),
            ("(not )?published", lambda no: self._do(machine.published(not no, self.now))),
            (r"leads ([0-9.]+)", lambda t: self._do(machine.leads(float(t), False, self.now))),
            (r"deposed(?: ([0-9.]+))?", self._deposed),
            (r"signal (\S+)", lambda s: self._do(machine.signalled(signal.Signals[s], self.now))),
            (r"workers(?: begun=(\d+))?( train)?", self._set_workers),
            ("(not )?stopped", self._set_stopped),
            (rf"left {ranks} (.+)", self._set_left),
            (r"change (.+)", self._change),
            (r"mpirun ends (\w+)(?:: (.+))?", self._mpirun_ends),
            ("stood still|that is all", lambda: self._tick(self.now)),
        ]

    def _begin(self) -> None:
        self._begun = True
        self._do(self._machine.begin(self.now))

    def _hello(self, ranks: str, host: str | None, epoch: str | None, number: str | None) -> None:
        for rank in read_ranks(ranks):
            place = self._members.places[self._members.place_of(rank)]
            self._open(
                ShimStatus(
                    rank,
                    _key(host or place.host),
                    int(number) if number else self._generation,
                    False,
                    epoch=int(epoch) if epoch else place.since,
                )
            )

    def _open(self, status: ShimStatus) -> None:
        number = len(self._lines)
        others = sum(line.status.rank == status.rank for line in self._lines.values())
        self._lines[number] = _Line(number, f"{status.rank}{chr(39) * others}", status)
        self._do(self._machine.said(number, status, self.now))

    def _agents_begin(self, ranks: str | None) -> None:
        for rank in read_ranks(ranks) if ranks else range(self._job.size):
            place = self._members.places[self._members.place_of(rank)]
            key, lines = _key(place.host), self._open_lines([rank])
            if lines and lines[-1].status.host == key and lines[-1].status.epoch == place.since:
                self._set(lines[-1], generation=self._generation, orphaned=False)
            else:
                self._open(ShimStatus(rank, key, self._generation, False, epoch=place.since))

    def _trains(self) -> None:
        self._agents_begin(None)
        self._workers = WorkersSeen(self._job.size, True)

    def _all_die(self, by: str | None) -> None:
        self._agents_die(None, None)
        self._mpirun_ends(by or "SIGKILL", None)

    def _agents_die(self, ranks: str | None, lack: str | None) -> None:
        if ranks:
            lines = self._open_lines(read_ranks(ranks))
        else:
            lines = [each for each in self._open_lines() if not self._is_silent(each)]
        for line in lines:
            self._set(line, orphaned=True, lack=lack or "")

    def _exits(self, code: str, ranks: str | None) -> None:
        for line in self._open_lines(read_ranks(ranks) if ranks else None):
            self._set(line, exit_code=int(code))

    def _line_ended(self, how: str, ranks: str) -> None:
        for line in self._open_lines(read_ranks(ranks)):
            line.open = False
            self._do(self._machine.line_ended(line.number, self.now, hung_up=how == "hung up"))

    def _set_silent(self, how: str, host: str) -> None:
        (self._silent.add if how == "silent" else self._silent.discard)(_key(host))

    def _answer(self, ranks: str, number: str | None) -> None:
        for line in self._open_lines(read_ranks(ranks)):
            self._say(line, Answer(int(number) if number else line.asked))

    def _set_facts(self, rank: str, text: str) -> None:
        _, given = read_options(text.split())
        node = int(given["node"])
        links = []
        for link in given["links"].split(","):
            peer, kind, counts = link.split(":")
            begun, posted, arrived = map(int, counts.split("/"))
            links.append((node, int(peer), kind, begun, posted, arrived))
        generation = int(given.get("generation", self._generation))
        self._node_facts[int(rank)] = NodeFacts(generation, node, f"n{node}", links, STANDS)

    def _probed(self, host: str, reason: str = "") -> None:
        self._probes.remove(host)  # it was to be probed
        self._do(self._machine.probed(host, reason, self.now))

    def _lost_agent(self, ranks: str, lack: str | None) -> None:
        self._each(ranks, AgentLost(lack or ""))

    def _deposed(self, until: str | None) -> None:
        self._do(self._machine.leads(float(until or self.now), True, self.now))

    def _set_workers(self, begun: str | None, train: str | None) -> None:
        self._workers = WorkersSeen(int(begun) if begun else None, bool(train))
        self._tick(self.now)

    def _set_stopped(self, no: str | None) -> None:
        self._mpirun = MpirunSeen(4321, not no)

    def _set_left(self, ranks: str, state: str) -> None:
        self._left |= dict.fromkeys(read_ranks(ranks), _LEFT[state])

    def _change(self, text: str) -> None:
        plain, given = read_options(text.split())
        withdrawn = tuple(name for name in given.get("withdrawn", "").split(",") if name)
        added = read_hosts(given.get("added", ""))
        change = HostChange(" ".join(plain), int(given["size"]), withdrawn, added)
        if self._machine.may_change:
            self._do(self._machine.change_due(change, self._left, self.now))
        else:
            self._write("not now")

    def _mpirun_ends(self, code: str, said: str | None) -> None:
        self._runs = False
        number = int(code) if code.isdecimal() else -signal.Signals[code]
        lines = said.split(" / ") if said else []
        self._do(self._machine.mpirun_ended(number, lines, self.now))

    # -------------------------------------------------------------- shims

    def _open_lines(self, ranks: Iterable[int] | None = None) -> list[_Line]:
        """Returns the lines of these ranks that are open, the last one of each; or all."""
        last = {line.status.rank: line for line in self._lines.values() if line.open}
        return [last[rank] for rank in (sorted(last) if ranks is None else ranks) if rank in last]

    def _is_silent(self, line: _Line) -> bool:
        return line.status.host in self._silent

    def _set(self, line: _Line, **changes: Any) -> None:
        fields = {each: getattr(line.status, each) for each in line.status.__struct_fields__}
        self._say(line, ShimStatus(**fields | changes))

    def _each(self, ranks: str, message: FromShim) -> None:
        for line in self._open_lines(read_ranks(ranks)):
            self._say(line, message)

    def _say(self, line: _Line, message: FromShim) -> None:
        if isinstance(message, ShimStatus):
            line.status = message
        if line.open:
            self._do(self._machine.said(line.number, message, self.now))

    # -------------------------------------------------------------- actions

    def _do(self, actions: list[out.Action]) -> None:
        assert not (self._over and actions), f"after the end: {actions}"
        answers: list[_Line] = []
        names = {number: line.name for number, line in self._lines.items()}
        for key, group in groupby(actions, alike):
            run = list(group)
            for action in run:
                self._heed(action, answers)
            if self._questions or not (key and isinstance(key[1], Ask | Lease)):
                for text in in_words(run, names):
                    self._write(text)
        for line in answers:
            if self._questions:
                self._write(f"({line.name} answers)")
            self._say(line, Answer(line.asked, self._node_facts.get(line.status.rank)))
        assert self._over == (self._machine.phase is Phase.ENDED)

    def _heed(self, action: out.Action, answers: list[_Line]) -> None:
        match action:
            case out.StartAgents():
                assert not self._runs, "mpirun is started twice"
                self._generation, self._members, self._runs = (
                    action.generation,
                    action.members,
                    True,
                )
                self._mpirun = replace(self._mpirun, pid=4321)
            case out.Send(number, message):
                line = self._lines[number]
                if isinstance(message, Ask) and line.open:
                    line.asked = message.number
                    if not self._is_silent(line):
                        answers.append(line)
                line.open = line.open and not isinstance(message, Over)
            case out.EndLine(number):
                self._lines[number].open = False
            case out.Probe(host):
                self._probes.add(host)
            case out.End():
                self._over = True

    def _write(self, text: str) -> None:
        self._written.append(f"  {self._prefix}> {text}")


def _key(host: str) -> str:
    """Returns a host's key: with its boot, the first one unless the name says another."""
    return host if "/" in host else f"{host}/1"
