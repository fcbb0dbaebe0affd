"""What the launcher's machine decides: actions, which its driver carries out in order. Pure.

docs/internals/driver.md has the contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hvd_ft.job.lifeline_messages import FromLauncher
from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership


@dataclass(frozen=True)
class Say:
    """Tell the user this line."""

    text: str


@dataclass(frozen=True)
class Publish:
    """Put what is about to begin into the job's record; `published` tells the outcome.

    Attributes:
        generation: of agents.
        members: the membership.
    """

    generation: int
    members: Membership


@dataclass(frozen=True)
class StartAgents:
    """Start mpirun with a generation of agents; `mpirun_ended` tells its end.

    Attributes:
        generation: their number.
        members: where they are.
        act_lease: seconds of a lease; None: hosts need none.
    """

    generation: int
    members: Membership
    act_lease: float | None


@dataclass(frozen=True)
class KillMpirun:
    """Kill mpirun, if it runs."""


@dataclass(frozen=True)
class ContinueMpirun:
    """Let the stopped processes of mpirun continue."""


@dataclass(frozen=True)
class Probe:
    """Find out whether mpirun reaches a host; `probed` tells it."""

    host: str


@dataclass(frozen=True)
class Send:
    """Send a message over a life-line."""

    line: int
    message: FromLauncher


@dataclass(frozen=True)
class EndLine:
    """Close a life-line; the machine has forgotten it."""

    line: int


@dataclass(frozen=True)
class WriteFlight:
    """Write a flight record; nothing waits for it.

    Attributes:
        reasons: kind and text of each.
        parts: of the ranks that have answered.
        missing: rank, host and reason of the others.
    """

    reasons: tuple[tuple[str, str], ...]
    parts: Mapping[int, Mapping[str, Any]]
    missing: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True)
class AnswerPage:
    """Answer the status page, which has asked for a rank to be killed.

    Attributes:
        number: of the request.
        problem: why it is not; "": it is.
    """

    number: int
    problem: str


@dataclass(frozen=True)
class HostsLeft:
    """The job continues without these hosts, in its processes.

    Attributes:
        names: of them.
        lost: whether they were lost; else they were given up.
    """

    names: tuple[str, ...]
    lost: bool


@dataclass(frozen=True)
class HostsJoined:
    """The job continues with these hosts besides, in its processes."""

    hosts: tuple[Host, ...]


@dataclass(frozen=True)
class End:
    """The job has ended; nothing comes after this.

    Attributes:
        code: the exit code.
        files_stay: whether the job's files stay, so that it can be resumed.
        lost: the hosts whose loss has ended it, if it may shrink, or that cannot be reached.
        resized: whether it was ended to continue with other hosts.
    """

    code: int
    files_stay: bool = False
    lost: tuple[str, ...] = ()
    resized: bool = False


Action = (
    Say
    | Publish
    | StartAgents
    | KillMpirun
    | ContinueMpirun
    | Probe
    | Send
    | EndLine
    | WriteFlight
    | AnswerPage
    | HostsLeft
    | HostsJoined
    | End
)


class Actions:
    """Collects the actions of one event."""

    def __init__(self) -> None:
        self._collected: list[Action] = []
        self._ended = False

    def add(self, *actions: Action) -> None:
        """Appends actions; none after the end."""
        if not self._ended:
            self._collected += actions
            self._ended = any(isinstance(action, End) for action in actions)

    def say(self, text: str) -> None:
        """Appends a line for the user."""
        self.add(Say(text))

    def take(self) -> list[Action]:
        """Returns the actions so far, and begins anew."""
        taken, self._collected = self._collected, []
        return taken
