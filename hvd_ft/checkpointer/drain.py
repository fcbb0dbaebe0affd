"""At the end of a job that has not ended well: the latest state that all ranks have, to the disk.

There may be no agents any more, so nodes do not hear of each other but by the directory. A node may
have the latest snapshot while another one has only the one before, so each writes both; the newest
one whose shares all come is completed, by whoever sees them first. If shares of a node do not come,
as its host is lost, there is a checkpoint without them, which says so.
"""

import time
from collections.abc import Sequence

from hvd_ft.checkpoint.catalogue import remove_leftovers
from hvd_ft.checkpointer.capture import capture, held, messages
from hvd_ft.checkpointer.completion import complete
from hvd_ft.checkpointer.cuts import Cut, Parts, common, with_earlier_loops
from hvd_ft.checkpointer.origin import Origin
from hvd_ft.checkpointer.share import AbandonedError, Began, wait_until, write_share
from hvd_ft.errors import HvdFtError
from hvd_ft.native.checkpointer import Checkpointer
from hvd_ft.system.say import say

_MOST_CUTS = 2  # a rank has two slots for a loop


def drain(native: Checkpointer, origin: Origin, seconds: float) -> None:
    """Writes what the arenas have, unless all is done or it is on the disk already.

    Args:
        native: of this node; the workers are dead or waiting.
        origin: of the checkpoints.
        seconds: how long to wait for other nodes.
    """
    if native.ended_well:
        return
    until = time.monotonic() + seconds
    try:
        cuts = common(held(native))
        written = _write(native, origin, cuts)
        if written and (done := _complete(origin, written, until)) is not None:
            say(f"the job's latest state is in {origin.path(done)}")
            remove_leftovers(origin.directory, [origin.job])
    except (OSError, HvdFtError) as error:
        say(f"the job's latest state could not be written to {origin.directory}: {error}")


def _write(native: Checkpointer, origin: Origin, cuts: dict[Cut, Parts]) -> list[Cut]:
    """Writes this node's share of the latest cuts; returns those, the newest one first."""
    written = []
    latest = sorted(cuts, reverse=True)[: _MOST_CUTS if len(origin.group) > 1 else 1]
    for cut in latest:
        if origin.is_complete(cut):
            break
        wanted = with_earlier_loops(cuts, cut)
        began = Began.now()
        told = messages(native, wanted[cut])
        captured = capture(native, wanted)
        if captured is None:
            continue
        try:
            write_share(origin, captured, told, began, await_seconds=0.0)
        except AbandonedError:
            continue  # it was completed meanwhile
        written.append(cut)
    return written


def _complete(origin: Origin, cuts: Sequence[Cut], until: float) -> Cut | None:
    """Completes the newest of these cuts of which all shares come; returns it.

    None if another node has done it.
    """

    def whole() -> list[Cut]:
        return [
            cut
            for cut in cuts
            # In this order: with its name it has no shares any more.
            if len(origin.shares(cut)) == len(origin.group) or origin.is_complete(cut)
        ]

    if wait_until(lambda: bool(whole()), until - time.monotonic()):
        cut = whole()[0]
        if origin.is_complete(cut):
            return None
        complete(origin, cut, origin.group)
        return cut
    shares = {each: origin.shares(each) for each in cuts}
    # Afterwards: the shares of one that another node has just completed are gone.
    if any(origin.is_complete(each) for each in cuts):
        return None
    cut = max(cuts, key=lambda each: len(shares[each]))
    complete(origin, cut, shares[cut])
    return cut
