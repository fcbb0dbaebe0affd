"""The rule that decides how many warm spares are prepared, and when: no process, no clock."""

from collections.abc import Iterable
from enum import Enum, auto

from hvd_ft.native.types import State

MAXIMUM_EARLY_DEATHS = 3  # of spares that were killed while they were being prepared


class Phase(Enum):
    """What a spare is doing."""

    PREPARING = auto()
    READY = auto()
    WORKING = auto()  # it has become a worker


class SparePool:
    """The spares of one node.

    Args:
        size: how many are to wait.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._phases: dict[int, Phase] = {}
        self._early_deaths = 0
        self.given_up = False

    @property
    def wants_one(self) -> bool:
        """Whether to prepare a spare: one after the other, as importing takes a CPU for seconds."""
        phases = list(self._phases.values())
        waiting = sum(phase is not Phase.WORKING for phase in phases)
        return not self.given_up and waiting < self._size and Phase.PREPARING not in phases

    def started(self, spare: int) -> None:
        """A process is there and begins to import."""
        self._phases[spare] = Phase.PREPARING

    def ready(self, spare: int) -> None:
        """It has imported everything; perhaps it has been taken already."""
        self._early_deaths = 0
        if self._phases[spare] is Phase.PREPARING:
            self._phases[spare] = Phase.READY

    def taken(self, spare: int) -> None:
        """It has become a worker."""
        self._phases[spare] = Phase.WORKING

    def ended(self, spare: int, unfit: bool) -> None:
        """It has ended.

        Args:
            spare: which one.
            unfit: whether it could not import what it has to.
        """
        if self._phases.pop(spare) is Phase.PREPARING:
            self._early_deaths += 1
        self.given_up |= unfit or self._early_deaths >= MAXIMUM_EARLY_DEATHS


def may_prepare(states: Iterable[State]) -> bool:
    """Tells whether preparing a spare holds up nobody: no rank is on its way to the others."""
    on_their_way = {State.STARTING, State.RESTARTING, State.REPLAYING}
    return not on_their_way.intersection(states)


def fits(spare: dict[str, str], worker: dict[str, str]) -> bool:
    """Tells whether a spare with one environment can stand for a worker with another.

    Libraries read theirs when they are loaded, Horovod's variables when it is initialised.
    """
    return _of_libraries(spare) == _of_libraries(worker)


def _of_libraries(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith("HOROVOD_")}
