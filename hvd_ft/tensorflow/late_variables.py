"""Warns once of variables that a script makes inside its loop and changes from then on.

A restarted process enters the loop in the middle. It cannot know whether the line that makes such a
variable would have kept the old one or made a new one, such as one for each epoch, so it uses the
variable that the line makes. Two kinds are restored: variables made where a pass over the data
begins exist when the loop is entered, and variables that a traced function makes are awaited
(made_variables.py).
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import xxhash

from hvd_ft.system.say import say
from hvd_ft.tensorflow import made_variables
from hvd_ft.tensorflow.made_variables import Identity
from hvd_ft.worker import training_loop


class LateVariables:
    """Those of one loop, which has just begun."""

    def __init__(self) -> None:
        self._phase = training_loop.phase()
        self._passes = 0
        self._before: set[Identity] = set()  # those that were there when the latest pass ended
        self._first: set[Identity] = set()  # those that were there when the first one began
        self._entered: set[Identity] = set()  # those that are there if this one is entered
        self._prints: dict[Identity, int] = {}  # of contents, at the latest look

    def begin_pass(self) -> None:
        """A pass over the data begins; this is where a restarted process enters the loop."""
        own = self._own()
        self._first = self._first if self._passes else own
        self._passes += 1
        self._entered = self._first | (own - self._before)

    def end_pass(self) -> None:
        """A pass over the data has ended."""
        self._before = self._own()

    def look(
        self, contents: Mapping[str, np.ndarray], averages: Mapping[str, Sequence[Sequence[str]]]
    ) -> None:
        """Reports the variables that have changed since the last call.

        Args:
            contents: of other variables than the model's and the State's, by identity.
            averages: as `shadows` returns them; these are made again.
        """
        made_again = {own for pairs in averages.values() for _, own in pairs}
        late = {str(identity): identity for identity in self._own() - self._entered}
        prints = {
            late[text]: xxhash.xxh3_64_intdigest(np.ascontiguousarray(content).tobytes())
            for text, content in contents.items()
            if text in late and text not in made_again
        }
        for identity in prints.keys() & self._prints.keys():
            if prints[identity] != self._prints[identity]:
                _say_it_is_late(identity.kind)
        self._prints = prints

    def _own(self) -> set[Identity]:
        alive = [identity for identity, _ in made_variables.made.alive()]
        return {each for each in alive if each.phase == self._phase and not each.by_trace}


@functools.cache
def _say_it_is_late(kind: str) -> None:
    name, line = kind.partition(" ")[0], kind.rpartition(" ")[2]
    say(
        f"the variable {name} ({line}) is made in the middle of a loop and changes from then on, "
        "so a restarted process begins with a new one: make it before the loop"
    )
