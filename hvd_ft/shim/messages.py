"""The messages between an agent and its shim, in one file like containerd's shim proto.

They go over a channel (system/channel.py) as JSON objects. What does not fit is refused where it is
read, with the field's name.
"""

from typing import Any

import msgspec

from hvd_ft.system.channel import Message


class _Order(msgspec.Struct, tag_field="do"):
    """From the agent."""


class _Report(msgspec.Struct, tag_field="report"):
    """From the shim."""


# ------------------------------------------------------------------ orders


class Attend(_Order):
    """Watch the launcher, and this agent from its first beat on.

    Attributes:
        rank: of the agent.
        host: where it is.
        generation: of it.
        launcher: the launcher's address; None: there is none to which lines lead.
        lease: seconds for which the agent, or the way to the launcher, may be silent.
        host_timeout: seconds for which the launcher waits for a lost host.
    """

    rank: int
    host: str
    generation: int
    launcher: str | None
    lease: float
    host_timeout: float


class EnterJob(_Order):
    """Lock the job's directory, and clear it at the end if this shim is the last one there."""

    directory: str


class Keep(_Order):
    """Live on for so long without an agent, and wait for the next one."""

    seconds: float


class Release(_Order):
    """The job is over, with this exit code: what `Keep` began ends."""

    exit_code: int


class Start(_Order):
    """Start a process in a session of its own, or with `spare` have a warm spare become it."""

    name: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    spare: bool


class Begin(_Order):
    """Have a worker begin that was a spare."""


class Kill(_Order):
    """Send a signal to the process group of that name."""

    name: str
    signal: int


class SignalOne(_Order):
    """Send a signal to the process of that name alone."""

    name: str
    signal: int


class Limit(_Order):
    """Say the text and kill the agent unless the next limit comes within the time.

    Attributes:
        seconds: of time; None: there is no limit any more.
        text: why.
    """

    seconds: float | None
    text: str = ""


class Beat(_Order):
    """The agent lives, and has counted this; the shim answers `BeatHeard`."""

    facts: Any


class Note(_Order):
    """Send this to the agent of rank 0, which writes it into the report."""

    note: dict[str, Any]


class Interrupted(_Order):
    """The worker has got the user's SIGINT."""


class End(_Order):
    """End everything."""


Order = (
    Attend
    | EnterJob
    | Keep
    | Release
    | Start
    | Begin
    | Kill
    | SignalOne
    | Limit
    | Beat
    | Note
    | Interrupted
    | End
)


# ------------------------------------------------------------------ reports


class Started(_Report):
    """A process runs. `time_ns` is CLOCK_MONOTONIC's; `spare`: it was one."""

    name: str
    pid: int
    time_ns: int
    spare: bool


class Refused(_Report):
    """A process cannot be started."""

    name: str
    error: str


class Exited(_Report):
    """A process has ended, with a status as from wait(2)."""

    name: str
    pid: int
    status: int
    time_ns: int


class Unkillable(_Report):
    """These processes do not die of SIGKILL."""

    pids: list[int]


class BeatHeard(_Report):
    """The shim lives."""


class Interrupt(_Report):
    """The user has pressed Ctrl-C."""


class StopAsked(_Report):
    """The job is to end because of this signal."""

    signal: int


class NoteTaken(_Report):
    """Another agent has sent this for the report."""

    note: dict[str, Any]


class FoundWorker(msgspec.Struct):
    """What became of the latest worker that the shim was told to start.

    Attributes:
        incarnation: its.
        pid: its; 0: it could not be started.
        begun: whether it was told to begin: a spare waits for that.
        end: status, as from wait(2), and time (CLOCK_MONOTONIC, ns); None: it lives.
    """

    incarnation: int
    pid: int = 0
    begun: bool = True
    end: tuple[int, int] | None = None


class Takeover(msgspec.Struct):
    """What a new agent sends first, at the socket of reattach.py, with its standard streams.

    Attributes:
        generation: of it.
        lease: seconds for which it may be silent.
        launcher: its address; another one than before if the job is resumed.
    """

    generation: int
    lease: float
    launcher: str | None


class Reattached(_Report):
    """The first report to a new agent.

    Attributes:
        shim: process id of the shim.
        worker: the latest; None: there was none.
        running: the names of processes that run.
    """

    shim: int
    worker: FoundWorker | None
    running: list[str]


Report = (
    Started
    | Refused
    | Exited
    | Unkillable
    | BeatHeard
    | Interrupt
    | StopAsked
    | NoteTaken
    | Reattached
)


def to_wire(message: Order | Report | Takeover) -> Message:
    """Returns the message as a channel sends it."""
    wire: Message = msgspec.to_builtins(message)
    return wire


def parse_order(wire: Message) -> Order:
    """Reads what an agent has sent.

    Raises:
        ValueError: it is no order.
    """
    order: Order = _parse(wire, Order)
    return order


def parse_report(wire: Message) -> Report:
    """Reads what a shim has sent.

    Raises:
        ValueError: it is no report.
    """
    report: Report = _parse(wire, Report)
    return report


def parse_takeover(wire: Message) -> Takeover:
    """Reads what a new agent sends first.

    Raises:
        ValueError: it is something else.
    """
    takeover: Takeover = _parse(wire, Takeover)
    return takeover


def _parse(wire: Message, kind: Any) -> Any:
    try:
        return msgspec.convert(wire, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"a message that is none of ours: {error}") from error
