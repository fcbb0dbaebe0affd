"""The messages between a shim and its job's launcher, in one file like those of agent and shim.

They go over a life-line (lifeline.py) as JSON objects, after both sides have proved that they know
the job's key (proof.py). A malformed message is refused by its reader, with the field's name.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hvd_ft.system.wire import Message, convert


class _FromShim(msgspec.Struct, frozen=True, tag_field="shim"):
    """From a shim."""


class _FromLauncher(msgspec.Struct, frozen=True, tag_field="launcher"):
    """From the launcher."""


# ------------------------------------------------------------------ shim


class ShimStatus(_FromShim, frozen=True):
    """How a shim is; sent first, and whenever it changes.

    Attributes:
        rank: whose shim it is.
        host: where it is.
        generation: of its agent.
        orphaned: whether that agent is dead.
        exit_code: of the job, once it is over.
        epoch: in which its host took its place in the job.
        lack: what of memory was used up, if the kernel has killed where its agent died; else "".
    """

    rank: int
    host: str
    generation: int
    orphaned: bool
    exit_code: int | None = None
    epoch: int = 0
    lack: str = ""


class NodeFacts(msgspec.Struct, frozen=True):
    """What the agent that leads a node has counted.

    Attributes:
        generation: of the agent.
        node: its number.
        name: its host's.
        links: of each end of a link: node, peer, kind, transfers begun, posted and arrived.
        stands: where its op stands, in words.
    """

    generation: int
    node: int
    name: str
    links: list[tuple[int, int, str, int, int, int]]
    stands: str


class Answer(_FromShim, frozen=True):
    """The answer to `Ask`.

    Attributes:
        number: of the question.
        facts: of the shim's agent; None if it leads no node.
    """

    number: int
    facts: NodeFacts | None = None


class Interrupted(_FromShim, frozen=True):
    """The worker has received the user's SIGINT."""


class AgentLost(_FromShim, frozen=True):
    """The shim's agent has died before there was anything to keep, so the shim ends, too.

    Hydra does not notice the death of an agent that has not begun with MPI.

    Attributes:
        lack: as of `ShimStatus`.
    """

    lack: str = ""


class ForReport(_FromShim, frozen=True):
    """Something that rank 0's agent is to write into the report."""

    note: dict[str, Any]


class FlightWanted(_FromShim, frozen=True):
    """There is a reason for a flight record.

    Attributes:
        kind: as in a record.
        text: in words.
    """

    kind: str
    text: str


class FlightPart(_FromShim, frozen=True):
    """A rank's part of a flight record.

    Attributes:
        number: of the record; 0: it was not asked for, as the job is being stopped.
        part: the part, as agent/flight_parts.py makes it.
    """

    number: int
    part: dict[str, Any]


FromShim = ShimStatus | Answer | Interrupted | AgentLost | ForReport | FlightWanted | FlightPart


# ------------------------------------------------------------------ launcher


class Ask(_FromLauncher, frozen=True):
    """Answer this question: once a second to each host, or to each shim if hosts need leases."""

    number: int


class Lease(_FromLauncher, frozen=True):
    """The host's processes may act for so long since its answer of this number (act_lease.py)."""

    number: int


class Interrupt(_FromLauncher, frozen=True):
    """Send SIGINT to the worker."""


class Preempt(_FromLauncher, frozen=True):
    """Have a checkpoint written, and then the job ends."""


class Stop(_FromLauncher, frozen=True):
    """The job ends because of a signal of this number."""

    signal: int


class Note(_FromLauncher, frozen=True):
    """For the report: to the shim of rank 0, whose agent writes it."""

    note: dict[str, Any]


class FlightAsk(_FromLauncher, frozen=True):
    """Send this rank's part of the flight record of this number."""

    number: int


class KillWorker(_FromLauncher, frozen=True):
    """Kill the worker, if there is one: a drill of the status page."""


class Over(_FromLauncher, frozen=True):
    """Nobody comes any more.

    Attributes:
        files_stay: whether the job's files are to stay.
    """

    files_stay: bool


FromLauncher = Ask | Lease | Interrupt | Preempt | Stop | Note | FlightAsk | KillWorker | Over


def parse_from_shim(wire: Message) -> FromShim:
    """Reads a shim's message.

    Raises:
        ValueError: it is none.
    """
    message: FromShim = convert(wire, FromShim)
    return message


def parse_from_launcher(wire: Message) -> FromLauncher:
    """Reads a launcher's message.

    Raises:
        ValueError: it is none.
    """
    message: FromLauncher = convert(wire, FromLauncher)
    return message


def to_wire(message: FromShim | FromLauncher) -> Message:
    """Returns a message as JSON."""
    wire: Message = msgspec.to_builtins(message)
    return wire
