"""The messages between an agent and its shim, in one file like containerd's shim proto.

They go over a channel (system/channel.py) as JSON objects. A malformed message is refused by its
reader, with the field's name.
"""

from typing import Any

import msgspec

from hvd_ft.job.lifeline_messages import NodeFacts
from hvd_ft.system.wire import Message, convert


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
        launcher: the launcher's address; None if it has no life-lines.
        lease: seconds for which the agent, or the connection to the launcher, may be silent.
        host_timeout: seconds for which the launcher waits for a lost host.
        epoch: in which this host took its place in the job.
        act_lease: seconds for which processes may act without a word of the launcher; None: they
            need no lease.
        known: whether the launcher was reached before: by another shim, or another generation.
        prefix: as in the setting `output_prefix`.
        output: the folder that receives a copy of the worker's output; "": none does.
    """

    rank: int
    host: str
    generation: int
    launcher: str | None
    lease: float
    host_timeout: float
    epoch: int = 0
    act_lease: float | None = None
    known: bool = False
    prefix: str = "none"
    output: str = ""


class EnterJob(_Order):
    """Lock the job's directory, and remove it at the end if this shim is the last one there."""

    directory: str


class Keep(_Order):
    """Outlive the agent, and wait for the next one for so long."""

    seconds: float


class Release(_Order):
    """The job is over, with this exit code; this ends the effect of `Keep`."""

    exit_code: int


class Start(_Order):
    """Start a process in a session of its own, or with `spare` turn a warm spare into it.

    With `end_seconds` it is ended by END_SIGNAL, and has this time before it is killed.
    """

    name: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    spare: bool
    end_seconds: float = 0.0


class Begin(_Order):
    """Let the worker that was a spare begin."""


class Kill(_Order):
    """Send a signal to the process group of that name."""

    name: str
    signal: int


class SignalOne(_Order):
    """Send a signal to only the process of that name."""

    name: str
    signal: int


class Limit(_Order):
    """Print the text and kill the agent unless another `Limit` comes in time.

    Attributes:
        seconds: of time; None: no limit any more.
        text: why.
    """

    seconds: float | None
    text: str = ""


class Beat(_Order):
    """The agent's heartbeat, with its counts; the shim answers `BeatHeard`."""

    facts: NodeFacts | None


class Note(_Order):
    """Send this to the agent of rank 0, for the report."""

    note: dict[str, Any]


class FlightWanted(_Order):
    """Tell the launcher that there is a reason for a flight record."""

    kind: str
    text: str


class FlightPart(_Order):
    """Send this rank's part of a flight record to the launcher."""

    number: int
    part: dict[str, Any]


class Interrupted(_Order):
    """The worker has received the user's SIGINT."""


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
    | FlightWanted
    | FlightPart
    | Interrupted
    | End
)


# ------------------------------------------------------------------ reports


class Started(_Report):
    """A process is running. `time_ns` is CLOCK_MONOTONIC's; `spare`: whether it was a spare."""

    name: str
    pid: int
    time_ns: int
    spare: bool


class Refused(_Report):
    """A process cannot be started."""

    name: str
    error: str


class Exited(_Report):
    """A process has ended, with a status as in wait(2).

    `why` is what is known besides, of a worker; "" if nothing.
    """

    name: str
    pid: int
    status: int
    time_ns: int
    why: str = ""


class Unkillable(_Report):
    """These processes have not died of SIGKILL."""

    pids: list[int]


class BeatHeard(_Report):
    """The shim's answer to a heartbeat.

    Attributes:
        known: whether it has reached the launcher, so the next shim knows what silence there means.
    """

    known: bool = False


class Interrupt(_Report):
    """The user has pressed Ctrl-C."""


class StopAsked(_Report):
    """The job should end because of this signal."""

    signal: int


class PreemptAsked(_Report):
    """The job should be checkpointed, and end."""


class NoteTaken(_Report):
    """A line for the report, from another agent."""

    note: dict[str, Any]


class FlightAsked(_Report):
    """The flight record of this number wants the rank's part."""

    number: int


class FoundWorker(msgspec.Struct):
    """The state of the latest worker that the shim was ordered to start.

    Attributes:
        incarnation: its.
        pid: its; 0: it could not be started.
        begun: whether it was ordered to begin, for which a spare waits. end: status as in wait(2),
            and time (CLOCK_MONOTONIC, ns); None if it is alive. why: as in `Exited`.
    """

    incarnation: int
    pid: int = 0
    begun: bool = True
    end: tuple[int, int] | None = None
    why: str = ""


class Takeover(msgspec.Struct):
    """The first message of a new agent, at the socket of reattach.py, with its standard streams.

    Attributes:
        generation: of it. lease: seconds for which it may be silent. launcher: its address, which
            is new if the job is resumed. act_lease: as in `Attend`, by a new launcher.
    """

    generation: int
    lease: float
    launcher: str | None
    act_lease: float | None = None


class Reattached(_Report):
    """The first report to a new agent.

    Attributes:
        shim: process id of the shim.
        worker: the latest one; None if there was none.
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
    | PreemptAsked
    | NoteTaken
    | FlightAsked
    | Reattached
)


def to_wire(message: Order | Report | Takeover) -> Message:
    """Returns the message in the form that a channel sends."""
    wire: Message = msgspec.to_builtins(message)
    return wire


def parse_order(wire: Message) -> Order:
    """Parses an agent's message.

    Raises:
        ValueError: it is not an order.
    """
    order: Order = convert(wire, Order)
    return order


def parse_report(wire: Message) -> Report:
    """Parses a shim's message.

    Raises:
        ValueError: it is not a report.
    """
    report: Report = convert(wire, Report)
    return report
