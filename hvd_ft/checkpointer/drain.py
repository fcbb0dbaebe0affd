"""After a job has ended badly, writes the latest state that all ranks have to the disk.

There may be no agents any more, so nodes communicate only by the directory. A node may have the
latest snapshot while another one has only the previous one. So each node writes its share of both,
and then publishes which cuts it has on the disk. When all nodes have done so, the first node to
notice completes the newest cut that all of them have. A node that publishes nothing, because its
host is lost, is finally left out, and the checkpoint says so; when one node has waited long enough,
the others do not wait any longer. Nodes with separate directories cannot communicate: they complete
both cuts, and the job that resumes takes the newest cut that is everywhere.
"""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hvd_ft.checkpoint.catalogue import remove_leftovers
from hvd_ft.checkpointer.capture import capture, held, messages
from hvd_ft.checkpointer.completion import complete
from hvd_ft.checkpointer.cuts import Cut, Parts, common, had_by_all, position_of, with_earlier_loops
from hvd_ft.checkpointer.origin import Origin, write_file
from hvd_ft.checkpointer.share import AbandonedError, Began, wait_until, write_share
from hvd_ft.errors import HvdFtError
from hvd_ft.native.checkpointer import Checkpointer
from hvd_ft.system.json_text import read_json_as
from hvd_ft.system.say import say

_MOST_CUTS = 2  # a rank has two slots for a loop


def drain(native: Checkpointer, origin: Origin, seconds: float) -> bool:
    """Writes the snapshots in the arenas, unless all work is done or they are already on the disk.

    Args:
        native: this node's side of the core; the workers are dead or waiting.
        origin: origin of the checkpoints.
        seconds: how long to wait for other nodes.

    Returns:
        Whether this node has completed a checkpoint.
    """
    if native.ended_well:
        return False
    until = time.monotonic() + seconds
    try:
        done = settle(
            origin,
            _write(native, origin, common(held(native), native.present)),
            until,
            idle=not native.has_ranks,
        )
    except (OSError, HvdFtError) as error:
        say(f"the job's latest state could not be written to {origin.directory}: {error}")
        return False
    if done is not None:
        say(f"the job's latest state is in {origin.path(done)}")
    return done is not None


def _write(native: Checkpointer, origin: Origin, cuts: Mapping[Cut, Parts]) -> list[Cut]:
    """Writes this node's share of the latest cuts; returns the cuts that it has on the disk."""
    written: list[Cut] = []
    enough = _MOST_CUTS if origin.place.nodes > 1 else 1
    for cut in sorted(cuts, reverse=True)[:_MOST_CUTS]:
        if len(written) == enough:
            break
        if origin.is_complete(cut):
            written.append(cut)
            break
        wanted = with_earlier_loops(cuts, cut)
        began = Began.now()
        told = messages(native, wanted[cut])
        try:
            captured = capture(native, wanted)
        except HvdFtError as error:
            say(f"{error}; an older one is looked for")
            continue
        if captured is None:
            continue
        try:
            present = native.present(position_of(wanted[cut]))
            write_share(origin, cut, captured, told, present, began=began, await_seconds=0.0)
        except AbandonedError:
            if not origin.is_complete(cut):
                continue
        written.append(cut)
    return written


def settle(origin: Origin, written: list[Cut], until: float, *, idle: bool = False) -> Cut | None:
    """Completes the newest cut that all nodes of the group have written.

    If there are nodes outside the group, which may have only the older cut, it completes every such
    cut.

    Args:
        origin: of the checkpoints.
        written: the cuts of which this node has its share on the disk, or all of the checkpoint.
        until: when nodes that have said nothing are left out, on the clock of time.monotonic().
        idle: whether this node has no rank any more, so that the others need nothing from it.

    Returns:
        The newest cut that this node has completed, if any.
    """
    said = origin.drained
    said.mkdir(0o700, exist_ok=True)
    told = None if idle else [(cut.loop, cut.number) for cut in written]
    write_file(said / f"{origin.place.node}.json", msgspec.json.encode(told))
    there = [(node, said / f"{node}.json") for node in origin.group]

    def all_have_said() -> bool:
        decided = any((said / f"{node}.done").exists() for node in origin.group)
        return decided or all(path.exists() for _, path in there)

    wait_until(all_have_said, until - time.monotonic())
    of_nodes = {node: cuts for node, path in there if (cuts := _said(node, path)) is not None}
    cuts = had_by_all(of_nodes.values())[: _MOST_CUTS if origin.apart else 1]
    mine = [cut for cut in cuts if not origin.is_complete(cut)]
    for cut in mine:
        complete(origin, cut, sorted(of_nodes))
    write_file(said / f"{origin.place.node}.done", b"")
    if all((said / f"{node}.done").exists() for node in of_nodes):
        shutil.rmtree(said, ignore_errors=True)
        remove_leftovers(origin.directory, [origin.job])
    return mine[0] if mine else None


def _said(node: int, path: Path) -> list[Cut] | None:
    """Returns the cuts that a node has on the disk; None: it has published none, or has no rank."""
    try:
        kind: Any = list[tuple[int, int]] | None
        cuts = read_json_as(path.read_bytes(), kind)
    except FileNotFoundError:
        return None
    except ValueError as error:
        say(f"{path} is damaged ({error}): what node {node} has written is left out")
        return None
    return None if cuts is None else [Cut(*each) for each in cuts]
