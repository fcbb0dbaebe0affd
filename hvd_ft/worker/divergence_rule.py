"""When a variable has diverged: it was the same on all ranks, and no longer is. Pure.

At each cut the fingerprints of all ranks are compared. A variable is *watched* from when it counts
as the same on all ranks; a difference is a divergence from then on: memory that went wrong, or a
script that does something on one rank only. When it counts as the same depends on its kind:

- A weight: when it was equal once. A broadcast has made it so, and all updates are the same.
- Another variable: when it was equal at two cuts with different contents. What is a rank's own may
  begin with the same contents everywhere, and is equal until its first change.
- A variable that has differed before it was watched is a rank's own. It counts as the same only
  after it was equal and changed at several cuts in a row: sums of gradients that are not exchanged
  yet are zero, and so equal, at every other boundary.
- What is known to be a rank's own is never watched.

A divergence is told once; when the variable has been equal again, it can be told again. A new
process begins with nothing: it does not tell what an earlier one may have told.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from hvd_ft.native.types import Divergence
from hvd_ft.worker.shared_contents import MAX_GROUPS, differing, groups, of_groups

_CHANGES, _CHANGES_OF_OWN = 1, 3  # at so many cuts in a row, to count as the same


class Kind(Enum):
    """What is known of a variable beforehand: see the head of this module."""

    WEIGHT = "weight"
    OTHER = "other"
    OWN = "own"


@dataclass(frozen=True)
class Variable:
    """One array of a snapshot.

    Attributes:
        name: as the user knows it.
        kind: what is known of it.
    """

    name: str
    kind: Kind = Kind.OTHER


class DivergenceRule:
    """Compares one cut after the other.

    Args:
        most: groups of variables that have a fingerprint in common, at most.
    """

    def __init__(self, most: int = MAX_GROUPS) -> None:
        self._most = most
        self._loop = -1
        self._variables: Sequence[Variable] = ()
        self._seen: list[_Seen] = []

    @property
    def watches(self) -> bool:
        """Whether there is anything of which the next cut could tell a divergence."""
        return any(seen.watched and not seen.diverged for seen in self._seen)

    def compare(
        self, loop: int, step: int, variables: Sequence[Variable], ranks: Sequence[bytes]
    ) -> Divergence | None:
        """Compares the ranks at a cut.

        Args:
            loop: its number, not below earlier ones. One with the same variables continues the
                loop before.
            step: steps of the loop that are done.
            variables: that rank 0 has there, in order.
            ranks: of every rank what `shared_contents.fingerprints` returned.

        Returns:
            What has diverged since the cut before; None if nothing has, or if the ranks were not
            at the same boundary with the same variables.
        """
        differ = differing(ranks)
        if differ is None:
            return None
        members = [[variables[at] for at in group] for group in groups(len(variables), self._most)]
        self._begin(loop, variables, len(members))
        own = of_groups(ranks[0])
        diverged = [
            number
            for number, (seen, group) in enumerate(zip(self._seen, members, strict=True))
            if seen.add(step, _kind(group), None if number in differ else own[number])
        ]
        if not diverged:
            return None
        first = diverged[0]
        return Divergence(
            variable=" … ".join(dict.fromkeys((members[first][0].name, members[first][-1].name))),
            step=step,
            ranks=apart([of_groups(prints)[first] for prints in ranks]),
            variables=sum(len(members[number]) for number in diverged),
            equal_step=self._seen[first].equal_step,
        )

    def _begin(self, loop: int, variables: Sequence[Variable], count: int) -> None:
        if list(variables) != list(self._variables):
            self._variables, self._seen = variables, [_Seen() for _ in range(count)]
        if loop != self._loop:
            self._loop = loop
            for seen in self._seen:
                seen.equal_step = 0


class _Seen:
    """What the cuts have shown of a group of variables."""

    def __init__(self) -> None:
        self.equal_step = 0  # the latest at which it was equal; 0: none of this loop
        self.watched = False
        self.diverged = False
        self._contents: bytes | None = None  # at the cut before, if it was equal there
        self._changes = 0  # since it last differed
        self._own = False  # whether it has differed before it was watched

    def add(self, step: int, kind: Kind, contents: bytes | None) -> bool:
        """Adds a cut; returns whether it shows a divergence. `contents`: None if they differ."""
        if kind is Kind.OWN:
            return False
        if contents is None:
            diverges = self.watched and not self.diverged
            self.diverged, self._own = self.watched, not self.watched
            self._contents, self._changes = None, 0
            return diverges
        self._changes += self._contents is not None and contents != self._contents
        self._contents, self.equal_step, self.diverged = contents, step, False
        if self._own:
            self.watched |= self._changes >= _CHANGES_OF_OWN
        else:
            self.watched |= kind is Kind.WEIGHT or self._changes >= _CHANGES
        return False


def apart(prints: Sequence[bytes]) -> tuple[int, ...]:
    """Returns the ranks that differ from the majority; all of them if there is none.

    Args:
        prints: every rank's fingerprint of something.
    """
    [(usual, times)] = Counter(prints).most_common(1)
    majority = 2 * times > len(prints)
    return tuple(rank for rank, each in enumerate(prints) if each != usual or not majority)


def _kind(group: Sequence[Variable]) -> Kind:
    kinds = {variable.kind for variable in group}
    return Kind.OWN if Kind.OWN in kinds else kinds.pop() if len(kinds) == 1 else Kind.OTHER
