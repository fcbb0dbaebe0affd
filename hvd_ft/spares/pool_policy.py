"""The rule that decides how many warm spares are prepared, and when. Pure."""

from collections.abc import Iterable
from enum import Enum, auto

from hvd_ft.native.types import State

MAXIMUM_EARLY_DEATHS = 3  # limit of spares that were killed while being prepared


class Phase(Enum):
    """The phase of a spare."""

    PREPARING = auto()
    READY = auto()
    WORKING = auto()  # it has become a worker


class SparePool:
    """The spares of one node.

    Args:
        size: number of spares that should wait.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._phases: dict[int, Phase] = {}
        self._early_deaths = 0
        self.given_up = False

    @property
    def wants_one(self) -> bool:
        """Whether to prepare another spare: one at a time, as importing takes a CPU for seconds."""
        phases = list(self._phases.values())
        waiting = sum(phase is not Phase.WORKING for phase in phases)
        return not self.given_up and waiting < self._size and Phase.PREPARING not in phases

    def started(self, spare: int) -> None:
        """A process has started and begins to import."""
        self._phases[spare] = Phase.PREPARING

    def ready(self, spare: int) -> None:
        """It has imported everything; it may have been taken already."""
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
    """Returns whether preparing a spare delays no rank: none is recovering."""
    on_their_way = {State.STARTING, State.RESTARTING, State.REPLAYING}
    return not on_their_way.intersection(states)


def fits(spare: dict[str, str], worker: dict[str, str]) -> bool:
    """Returns whether a spare with one environment can become a worker with another.

    Libraries read their variables when they are loaded; Horovod reads its own when it is
    initialised.
    """
    return _of_libraries(spare) == _of_libraries(worker)


def _of_libraries(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith("HOROVOD_")}
