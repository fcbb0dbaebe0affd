"""When a variable has diverged: it was the same on all ranks, and no longer is. Pure.

At each cut the fingerprints of all ranks are compared. As soon as a variable is known to be the
same on all ranks, it is *watched*. From then on a difference is a divergence: memory went wrong, or
the script does something on one rank only. When a variable is known to be the same depends on its
kind:

- A weight: after it was equal once. A broadcast has made it so, and all updates are the same.
- Another variable: after it was equal at two cuts with different contents. A rank's own variable
  may begin with the same contents everywhere, and is then equal until its first change.
- A variable that differed before it was watched is taken for a rank's own. It is watched only after
  it was equal, and changed, at several cuts in a row: sums of gradients that are not exchanged yet
  are zero, and so equal, at every other boundary.
- A variable that is known to be a rank's own is never watched.

Within a loop the list of variables may change, such as by gradients that are there at some cuts
only: what is known of each stays.

A divergence is reported once; when the variable has been equal again, it can be reported again. A
new process starts without knowledge, and does not repeat reports of an earlier process.
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


_Group = tuple[tuple[Variable, ...], int]  # and how many groups of the same names come before it


class DivergenceRule:
    """Compares one cut after the other.

    Args:
        most: the largest number of groups of variables, each of which has one fingerprint.
    """

    def __init__(self, most: int = MAX_GROUPS) -> None:
        self._most = most
        self._loop = -1
        self._variables: Sequence[Variable] = ()
        self._seen: dict[_Group, _Seen] = {}

    @property
    def watches(self) -> bool:
        """Whether any variable is watched, so that the next cut could show a divergence."""
        return any(seen.watched and not seen.diverged for seen in self._seen.values())

    def compare(
        self, loop: int, step: int, variables: Sequence[Variable], ranks: Sequence[bytes]
    ) -> Divergence | None:
        """Compares the ranks at a cut.

        Args:
            loop: number of the training loop, not below earlier ones. A loop with the same
                variables continues the previous one.
            step: steps of the loop that are done.
            variables: rank 0's variables there, in order.
            ranks: the result of `shared_contents.fingerprints` on every rank.

        Returns:
            The variables that have diverged since the previous cut; None if there are none, or if
            the ranks were not at the same boundary with the same variables.
        """
        differ = differing(ranks)
        if differ is None:
            return None
        members = [[variables[at] for at in group] for group in groups(len(variables), self._most)]
        all_seen = self._seen_of(loop, variables, members)
        own = of_groups(ranks[0])
        diverged = [
            number
            for number, (seen, group) in enumerate(zip(all_seen, members, strict=True))
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
            equal_step=all_seen[first].equal_step,
        )

    def _seen_of(
        self, loop: int, variables: Sequence[Variable], members: list[list[Variable]]
    ) -> "list[_Seen]":
        """Returns what is known of each group so far."""
        if loop != self._loop:
            if list(variables) != list(self._variables):
                self._seen.clear()
            self._loop = loop
            for seen in self._seen.values():
                seen.equal_step = 0
        self._variables = variables
        times: Counter[tuple[Variable, ...]] = Counter()  # groups may have the same names
        found = []
        for group in map(tuple, members):
            found.append(self._seen.setdefault((group, times[group]), _Seen()))
            times[group] += 1
        return found


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
