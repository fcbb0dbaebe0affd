"""The actions that a supervisor can ask of its agent; see supervisor.py."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StartWorker:
    """Have the shim start this incarnation: a warm spare if `spare` and there is one."""

    incarnation: int
    spare: bool


@dataclass(frozen=True)
class WatchWorker:
    """Watch this worker for a stall from now on."""


@dataclass(frozen=True)
class BeginWorker:
    """Let the worker that was a spare begin, as its pid is published now."""


@dataclass(frozen=True)
class SignalWorker:
    """Send a signal to the worker's process group."""

    number: signal.Signals


@dataclass(frozen=True)
class NoteStarted:
    """Publish in the arena that this worker was started."""

    incarnation: int
    pid: int


@dataclass(frozen=True)
class NoteFailed:
    """Publish that the worker failed.

    Attributes:
        status: as from wait(2).
    """

    status: int


@dataclass(frozen=True)
class NoteCause:
    """Note in the report why a worker died.

    Attributes:
        incarnation: of the worker.
        text: its last words, or what was found out about its end.
    """

    incarnation: int
    text: str


@dataclass(frozen=True)
class NoteDone:
    """Publish that the rank has done its work.

    Attributes:
        status: as from wait(2).
    """

    status: int


@dataclass(frozen=True)
class StopJob:
    """Stop the job on all ranks.

    Attributes:
        exit_code: of the job.
        message: why, in one line.
    """

    exit_code: int
    message: str


@dataclass(frozen=True)
class RunHook:
    """Run a command of the user's.

    Attributes:
        hook: `on-failure` or `on-restart`.
        incarnation: the incarnation that the hook is about.
        facts: environment variables for the hook.
    """

    hook: str
    incarnation: int
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReplaceShim:
    """Start another shim; then call `shim_replaced` or `shim_not_replaced`."""


@dataclass(frozen=True)
class Say:
    """Print a line for the user."""

    text: str


@dataclass(frozen=True)
class SayWhyStopped:
    """Print once why the job stops, if this rank stopped it."""


Action = (
    StartWorker
    | WatchWorker
    | BeginWorker
    | SignalWorker
    | NoteStarted
    | NoteFailed
    | NoteCause
    | NoteDone
    | StopJob
    | RunHook
    | ReplaceShim
    | Say
    | SayWhyStopped
)
