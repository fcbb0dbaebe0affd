"""The rule that decides which link between two nodes is broken. Pure.

Every node counts, for each of its links to another node, the transfers over MPI that it has begun,
those that it is ready for (*posted*), and those that have arrived. Once one end has begun a
transfer and the other is ready for it, delivering it is up to MPI alone. If nothing arrives for the
whole time limit, the link is broken, even if neither MPI nor TCP has noticed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hvd_ft.native.links import Counts, End


@dataclass(frozen=True)
class Broken:
    """A link on which nothing arrives.

    Attributes:
        source: the node that sends.
        dest: the node at which nothing arrives.
        kind: of the link, as seen from `dest`.
        seconds: for how long.
    """

    source: int
    dest: int
    kind: str
    seconds: float


class LinkWatch:
    """The links of one generation of agents.

    Args:
        timeout_seconds: how long a link may deliver nothing while a transfer is under way.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._counts: dict[End, Counts] = {}
        self._waits: dict[End, tuple[int, float]] = {}  # arrivals, and time of the last

    def counted(self, ends: Mapping[End, Counts]) -> None:
        """Takes a node's latest counts."""
        self._counts.update(ends)

    def states(self, now: float, silent: Iterable[int] = ()) -> Iterator[tuple[End, int, float]]:
        """Yields what is known of each link: the end at which transfers arrive, and how many have.

        Also for how many seconds nothing has arrived while a transfer was under way: 0 if the link
        delivers, and infinity if an end's node does not answer, or has not answered yet.

        Args:
            now: seconds on any steady clock.
            silent: nodes that do not answer.
        """
        ignored = set(silent)
        for end, counts in sorted(self._counts.items()):
            if ignored & {end.node, end.peer} or end.other not in self._counts:
                yield end, counts.arrived, float("inf")
                continue
            _, since = self._waits.get(end, (0, now))
            yield end, counts.arrived, now - since

    def look(self, now: float, silent: Iterable[int] = ()) -> Broken | None:
        """Finds a link that has broken.

        Args:
            now: seconds on any steady clock.
            silent: nodes that do not answer, so their counts are old.
        """
        ignored = set(silent)
        for end, counts in self._counts.items():
            sent = self._counts.get(end.other)
            delivers = sent is None or min(sent.begun, counts.posted) <= counts.arrived
            if delivers or ignored & {end.node, end.peer}:
                self._waits.pop(end, None)
                continue
            arrived, since = self._waits.get(end, (-1, now))
            if arrived != counts.arrived:
                since = now
            self._waits[end] = (counts.arrived, since)
            if now - since >= self._timeout:
                return Broken(end.peer, end.node, end.kind, now - since)
        return None
