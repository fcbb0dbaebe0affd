"""What a starter of shims (shim/starter.py) reports to the launcher, one line each. Pure."""

from dataclasses import dataclass

_LISTENS = "listens"
_SIGNALLED = "signalled"


@dataclass(frozen=True)
class Listens:
    """Agents on its host can have shims started.

    Attributes:
        host: its name.
    """

    host: str

    def __str__(self) -> str:
        return f"{_LISTENS} {self.host}"


@dataclass(frozen=True)
class Signalled:
    """The scheduler has sent it a signal, which asks the job to end.

    Attributes:
        number: of the signal.
    """

    number: int

    def __str__(self) -> str:
        return f"{_SIGNALLED} {self.number}"


def parse(line: str) -> Listens | Signalled | None:
    """Reads a line; None if it is no report, such as one that a library has printed."""
    kind, _, rest = line.strip().partition(" ")
    if kind == _LISTENS and rest:
        return Listens(rest)
    if kind == _SIGNALLED and rest.isdecimal():
        return Signalled(int(rest))
    return None
