"""The ranks that are present, where a training loop comes to a change of them: a roster begins.

Which roster begins at which step boundary is the core's to say (csrc/protocol/roster.h). Horovod
has to follow it, so hvd.init() registers how.
"""

import os
from collections.abc import Callable, Sequence

from hvd_ft.errors import HvdFtError
from hvd_ft.native.core import Worker
from hvd_ft.system.say import say
from hvd_ft.system.spans import span_numbers

_VARIABLE = "HOROVOD_FT_INJECT"  # as job/drills.py has written it

_begin: Callable[[int], bool] | None = None
_follow: Callable[[], bool] | None = None


def register(begin: Callable[[int], bool], follow: Callable[[], bool]) -> None:
    """Registers how Horovod follows.

    Args:
        begin: begins the roster with this number together with all present ranks, and returns when
            it is in force; False if Horovod was shut down meanwhile.
        follow: waits until Horovod has the roster of where the script is.
    """
    global _begin, _follow
    _begin, _follow = begin, follow


def follow() -> None:
    """Waits until Horovod has the roster of where the script is: it has continued elsewhere."""
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
            "ranks are to leave the job, but Horovod was shut down: call hvd.init() before the "
            "training loop, and hvd.shutdown() after it"
        )
    present = worker.present(number)
    if worker.rank not in present:
        say(f"rank {worker.rank} leaves the job at step {step}")
        return False
    if worker.rank == 0:
        left = [str(rank) for rank in before if rank not in present]
        say(
            f"from step {step} on the job has {len(present)} ranks instead of {len(before)}: "
            f"{'ranks' if len(left) > 1 else 'rank'} {', '.join(left)} left"
        )
    return True


class LeaveDrills:
    """Drills of this process that have ranks leave, each once (`--inject leave=RANKS,step=N`).

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
