"""Writes a node's share of a checkpoint: its ranks' snapshots, with equal arrays only once.

The first node of a group first publishes fingerprints of the arrays that all its ranks have in
common, and then writes them. The other nodes leave out arrays with the same fingerprints.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from hvd_ft.checkpoint import contents as layout
from hvd_ft.checkpoint.manifest import File, Messages, Part, Share
from hvd_ft.checkpoint.tensors import write_tensors
from hvd_ft.checkpointer.capture import Captured
from hvd_ft.checkpointer.common import Common, common_arrays
from hvd_ft.checkpointer.cuts import Cut
from hvd_ft.checkpointer.origin import Origin, sync, write_file
from hvd_ft.errors import HvdFtError
from hvd_ft.system.json_text import read_json_as
from hvd_ft.worker.shared_contents import thawed

_LOOK_SECONDS = 0.02  # at what other nodes write

Prints = dict[int, dict[int, str]]  # by loop, and by number of the array


class AbandonedError(HvdFtError):
    """The share is no longer needed: a later checkpoint has begun, or the job ends."""


def never() -> bool:
    """Nothing is given up."""
    return False


@dataclass(frozen=True)
class Began:
    """When this process began to work on a share, by two clocks, in seconds."""

    real: float
    cpu: float

    @classmethod
    def now(cls) -> "Began":
        """Returns the present time."""
        return cls(time.monotonic(), time.process_time())


def write_share(
    origin: Origin,
    latest: Cut,
    captured: Mapping[Cut, Mapping[int, Captured]],
    messages: tuple[list[Messages], list[Messages]],
    present: Sequence[int],
    *,
    began: Began,
    await_seconds: float,
    given_up: Callable[[], bool] = never,
    over: Callable[[], bool] = never,
) -> None:
    """Writes this node's share of a checkpoint.

    Args:
        origin: origin of the checkpoint.
        latest: cut of the checkpoint.
        captured: the snapshots of the node's ranks at this cut, and the last ones of earlier loops;
            none if no rank of the node is present.
        messages: numbers of messages sent and received at that cut.
        present: the job's ranks at that cut, which the checkpoint numbers anew.
        began: when the snapshots began to be copied.
        await_seconds: how long to wait for the fingerprints of the group's first node.
        given_up: returns whether the share is no longer needed; called while waiting.
        over: returns whether no checkpoint is needed any more; called while writing.

    Raises:
        OSError: it cannot be written.
        AbandonedError: it was given up, or another node has removed it.
    """
    partial = origin.partial(latest)
    try:
        partial.mkdir(0o700, exist_ok=True)
        writer = _ShareWriter(origin, latest, await_seconds, given_up, over)
        numbers = {rank: number for number, rank in enumerate(present)}
        there = {
            cut: {rank: each for rank, each in ranks.items() if rank in numbers}
            for cut, ranks in captured.items()
            if not numbers.keys().isdisjoint(ranks)
        }
        parts = [
            msgspec.structs.replace(part, rank=numbers[part.rank]) for part in writer.write(there)
        ]
        sync(partial)
        now = Began.now()
        share = Share(
            node=origin.place.node,
            parts=parts,
            files=writer.files,
            sent=_renumbered(messages[0], numbers),
            received=_renumbered(messages[1], numbers),
            size=len(present),
            seconds=round(now.real - began.real, 3),
            cpu_seconds=round(now.cpu - began.cpu, 3),
        )
        write_file(origin.share(latest, share.node), msgspec.json.encode(share))
    except FileNotFoundError:
        if partial.exists() or not origin.directory.exists():
            raise
        raise AbandonedError(f"{partial} has been removed") from None


def _renumbered(messages: Sequence[Messages], numbers: Mapping[int, int]) -> list[Messages]:
    return [
        Messages(numbers[each.source], numbers[each.dest], each.count)
        for each in messages
        if each.source in numbers and each.dest in numbers
    ]


class _ShareWriter:
    """Writes the files of one share.

    Args:
        origin: origin of the checkpoint.
        latest: cut of the checkpoint.
        await_seconds, given_up, over: as for `write_share`.

    Attributes:
        files: those written, by name.
    """

    def __init__(
        self,
        origin: Origin,
        latest: Cut,
        await_seconds: float,
        given_up: Callable[[], bool],
        over: Callable[[], bool],
    ) -> None:
        self._origin = origin
        self._latest = latest
        self._await_seconds = await_seconds
        self._given_up = given_up
        self._over = over
        self.files: dict[str, File] = {}

    def write(self, captured: Mapping[Cut, Mapping[int, Captured]]) -> list[Part]:
        """Writes the files; returns the manifest's part of each rank and loop."""
        common = {
            cut: common_arrays({rank: each.contents for rank, each in ranks.items()})
            for cut, ranks in captured.items()
        }
        theirs = self._exchange({cut.loop: dict(found.prints) for cut, found in common.items()})
        return [
            part
            for cut, ranks in captured.items()
            for part in self._write_loop(cut, ranks, common[cut], theirs.get(cut.loop, {}))
        ]

    def _exchange(self, mine: Prints) -> Prints:
        """Publishes fingerprints, or returns those that the group's first node has published."""
        path = self._origin.prints(self._latest)
        if self._origin.leads:
            if len(self._origin.group) > 1:
                write_file(path, msgspec.json.encode(mine))
            return {}
        if not wait_until(path.exists, self._await_seconds, self._given_up):
            return {}
        try:
            return read_json_as(path.read_bytes(), Prints)
        except ValueError:  # damaged: what is equal is written by each node
            return {}

    def _write_loop(
        self, cut: Cut, ranks: Mapping[int, Captured], common: Common, theirs: Mapping[int, str]
    ) -> list[Part]:
        elsewhere = {n for n, mine in common.prints.items() if theirs.get(n) == mine}
        if len(ranks) == 1 and not self._origin.leads:  # it has the rest in common with nobody
            common = common.only(elsewhere)
        order = list(ranks[min(ranks)].contents.arrays)
        arrays = {order[n]: array for n, array in common.arrays.items() if n not in elsewhere}
        shared = []
        if arrays:
            shared.append(layout.node_file(cut.loop, self._origin.place.node))
            self._store(shared[0], *layout.of_node(arrays, order))
        if elsewhere:
            shared.append(layout.node_file(cut.loop, min(self._origin.group)))
        return [self._write_rank(cut, rank, each, common, shared) for rank, each in ranks.items()]

    def _write_rank(
        self, cut: Cut, rank: int, captured: Captured, common: Common, shared: list[str]
    ) -> Part:
        found = captured.contents
        order = list(found.arrays)
        own = {name: found.arrays[name] for n, name in enumerate(order) if n not in common.arrays}
        values = np.frombuffer(found.values, np.uint8)
        name = layout.rank_file(cut.loop, rank)
        self._store(name, *layout.of_rank(own, values, order))
        step = int(thawed(found.values)["step"])
        return Part(rank, cut.loop, step, cut.number, captured.position, [name, *shared])

    def _store(
        self, name: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]
    ) -> None:
        path = self._origin.partial(self._latest) / name
        path.unlink(missing_ok=True)  # of a writer that was killed
        self.files[name] = write_tensors(path, tensors, metadata, self._go_on)

    def _go_on(self) -> None:
        if self._over():
            raise AbandonedError("the job has ended, and needs no checkpoint")


def wait_until(
    there: Callable[[], bool], seconds: float, given_up: Callable[[], bool] = never
) -> bool:
    """Waits for something on a disk that other hosts share; returns whether it is there.

    Args:
        there: returns whether it is there.
        seconds: how long to wait.
        given_up: returns whether the share is no longer needed.

    Raises:
        AbandonedError: it was given up.
    """
    until = time.monotonic() + seconds
    while not there():
        if given_up():
            raise AbandonedError("what another node would write is not awaited any more")
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)  # a network filesystem does not notify of changes
    return True
