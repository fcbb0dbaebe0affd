"""Changes of the present ranks at a step boundary of a training loop: a roster begins.

The core decides which roster begins at which step boundary (csrc/protocol/roster.h). Horovod has to
follow, so hvd.init() registers functions for this.

Ranks that return get rank 0's state of that boundary, by a broadcast in the new roster. As the
broadcast is in the log, they get the same state again if they are restarted.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hvd_ft.errors import HvdFtError
from hvd_ft.native.core import Worker
from hvd_ft.system.say import say
from hvd_ft.system.spans import span_numbers
from hvd_ft.worker.snapshot_format import decode, encode

Contents = tuple[Mapping[str, np.ndarray], Mapping[str, Any]]  # arrays and values

_VARIABLE = "HOROVOD_FT_INJECT"  # as job/drills.py has written it

_begin: Callable[[int], bool] | None = None
_follow: Callable[[], bool] | None = None
_broadcast: Callable[[bytes], bytes] | None = None


def register(
    begin: Callable[[int], bool],
    follow: Callable[[], bool],
    broadcast: Callable[[bytes], bytes],
) -> None:
    """Registers the functions with which Horovod follows.

    Args:
        begin: begins the roster with this number together with all present ranks, and returns when
            it is in force; False if Horovod was shut down meanwhile.
        follow: waits until Horovod has the roster of the script's position.
        broadcast: returns rank 0's bytes on all present ranks.
    """
    global _begin, _follow, _broadcast
    _begin, _follow, _broadcast = begin, follow, broadcast


def follow() -> None:
    """Waits until Horovod has the roster of the script's position, after this has changed."""
    if _follow is not None:
        _follow()


def begin(worker: Worker, number: int, step: int) -> bool:
    """Begins a roster, which is due.

    Args:
        worker: this process's attachment to its agent.
        number: of the roster.
        step: of the training loop, for messages.

    Returns:
        Whether this rank is in it.

    Raises:
        HvdFtError: Horovod is not initialised, or was shut down meanwhile.
    """
    before = worker.present(number - 1)
    worker.await_quiet()
    if _begin is None or not _begin(number):
        raise HvdFtError(
            "the ranks of the job change here, but Horovod was shut down: call hvd.init() before "
            "the training loop, and hvd.shutdown() after it"
        )
    present = worker.present(number)
    if worker.rank not in present:
        say(f"rank {worker.rank} leaves the job at step {step}")
        return False
    if worker.rank == 0:
        left = _named([rank for rank in before if rank not in present], "left")
        back = _named(_back(worker, number), "returned")
        say(
            f"from step {step} on the job has {len(present)} ranks instead of {len(before)}: "
            f"{'; '.join(filter(None, (left, back)))}"
        )
    return True


def _back(worker: Worker, number: int) -> list[int]:
    """Returns the ranks that return with a roster."""
    before = worker.present(number - 1)
    return [rank for rank in worker.present(number) if rank not in before]


def _named(ranks: Sequence[int], what: str) -> str:
    numbers = ", ".join(map(str, ranks))
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {numbers} {what}" if ranks else ""


def hand_over(worker: Worker, number: int, contents: Callable[[], Contents]) -> None:
    """Gives rank 0's state to the ranks that return with a roster that has just begun.

    Args:
        worker: this process's attachment to its agent.
        number: of the roster.
        contents: returns the state of this boundary.
    """
    if _back(worker, number):
        assert _broadcast is not None  # it comes with what `begin` has called
        _broadcast(b"".join(encode(*contents())) if worker.rank == 0 else b"")


class HandedOver:
    """The state that this rank gets when it returns; create it when Horovod has the roster.

    Raises:
        HvdFtError: Horovod is not initialised.
    """

    def __init__(self) -> None:
        if _broadcast is None:
            raise HvdFtError(
                "this rank returns to the job, but Horovod is not initialised: call hvd.init() "
                "before the training loop"
            )
        self._contents = decode(memoryview(_broadcast(b"")))

    @property
    def step(self) -> int:
        """Steps of the training loop that are done."""
        return int(self._contents[1]["step"])

    def read(self, _loop: int) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
        """Returns arrays and values, as of a snapshot, without the states of generators."""
        arrays, values = self._contents
        return arrays, {**values, **({"rng": {}} if "rng" in values else {})}


class LeaveDrills:
    """Drills of this process that make ranks leave, each once (`--inject leave=RANKS,step=N`).

    Args:
        entries: `HOROVOD_FT_INJECT`, point:op:step:way:value:text;…
    """

    def __init__(self, entries: str) -> None:
        parts = [entry.split(":", 5) for entry in entries.split(";") if entry]
        self._open = {int(part[2]): part[5] for part in parts if part[3] == "l"}

    def strike(self, step: int, worker: Worker) -> None:
        """Asks ranks to leave if that is due.

        Args:
            step: steps of the training loop that are done.
            worker: rank 0's attachment to its agent.
        """
        text = self._open.pop(step, None)
        if text is None:
            return
        say(f"drill: {text}")
        worker.ask_to_leave(leaving(text))


def leaving(text: str) -> Sequence[int]:
    """Returns the ranks of a drill such as `leave=2-3,step=20`."""
    return span_numbers(text.partition("leave=")[2].partition(",")[0])


def own_drills() -> LeaveDrills:
    """Returns those of this process."""
    return LeaveDrills(os.environ.get(_VARIABLE, ""))
