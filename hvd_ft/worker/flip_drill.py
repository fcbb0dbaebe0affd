"""A drill that changes one bit of a variable on one rank (`--inject …,flip=VARIABLE`)."""

import os
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from hvd_ft.errors import HvdFtError
from hvd_ft.system.say import say

_VARIABLE = "HOROVOD_FT_INJECT"  # as job/drills.py has written it
_SHOWN = 5  # names of variables in an error


class FlipDrills:
    """The flip drills of this process, each of which strikes once.

    Args:
        entries: `HOROVOD_FT_INJECT`, point:op:step:way:value:text;…
    """

    def __init__(self, entries: str) -> None:
        parts = [entry.split(":", 5) for entry in entries.split(";") if entry]
        self._open = {int(part[2]): part[5] for part in parts if part[3] == "f"}

    def strike(
        self,
        step: int,
        read: Callable[[], Mapping[str, np.ndarray]],
        assign: Callable[[str, np.ndarray], object],
    ) -> None:
        """Flips a bit if that is due.

        Args:
            step: steps of the training loop that are done.
            read: returns all variables by name.
            assign: sets one of them.

        Raises:
            HvdFtError: there is no such variable.
        """
        text = self._open.pop(step, None)
        if text is None:
            return
        wanted = text.partition("flip=")[2].partition(",")[0]
        arrays = read()
        name = chosen([name for name, array in arrays.items() if array.size], wanted)
        if name is None:
            names = ", ".join(map(_plain, list(arrays)[:_SHOWN]))
            more = ", …" if len(arrays) > _SHOWN else ""
            raise HvdFtError(
                f"--inject {text}: no variable is called {wanted} or has it in its name; there are "
                f"{names}{more}"
            )
        say(f"drill: {text}")
        assign(name, flipped(arrays[name]))


def own_drills() -> FlipDrills:
    """Returns those of this process."""
    return FlipDrills(os.environ.get(_VARIABLE, ""))


def chosen(names: Iterable[str], wanted: str) -> str | None:
    """Returns the first name that is `wanted`, else the first that contains it, else None.

    Args:
        names: with numbers, as a snapshot has them: `3:dense/kernel:0`.
        wanted: a name without number; the part after the second colon may be missing.
    """
    names = list(names)
    equal = [name for name in names if wanted in (_plain(name), _plain(name).partition(":")[0])]
    return next(iter([*equal, *(name for name in names if wanted in _plain(name))]), None)


def flipped(array: np.ndarray) -> np.ndarray:
    """Returns a copy with one bit of its first element flipped, one that training keeps.

    The lowest bits of a float get lost in its updates, and in a zero they have hardly any value.
    """
    copy = np.array(array)
    data = copy.reshape(-1).view(np.uint8)
    if copy.dtype.kind in "biu":
        data[0] ^= 1
    elif copy.reshape(-1)[0] == 0:
        data[copy.itemsize - 1] ^= 0x40  # it becomes 2
    else:
        data[copy.itemsize - 2] ^= 0x08  # of the fraction's upper half
    return copy


def _plain(name: str) -> str:
    number, _, rest = name.partition(":")
    return rest if number.isdecimal() else name
