"""Gives the ranks of a lost node their snapshots again, on the node that takes its place.

Their private parts come from their buddy's node (csrc/replication/private_parts.h). Their shared
data comes from any node that has the same cut, because it is equal to a rank's data there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hvd_ft.agent.node_channel import NodeChannel
from hvd_ft.errors import HvdFtError
from hvd_ft.native.rejoin import Rejoining, Slot

_SLOTS = 2
_NOTHING = memoryview(b"")  # at the nodes that only look on
_NO_SLOT = Slot(begin=0, ended=0, published=0, word=0, position=0, bytes=0, stripe=0)


@dataclass(frozen=True)
class Chosen:
    """A rank's snapshot of a loop to start again from; `slot.word` 0: it has none."""

    rank: int
    loop: int
    number: int  # of the slot
    slot: Slot


def choose(loop: int, slots: Mapping[int, Sequence[Slot]]) -> list[Chosen]:
    """Chooses the snapshots from which ranks of one node start again in a loop. Pure.

    From shared snapshots all these ranks start at the oldest cut from which any of them starts: all
    its parts exist, while a newer cut may be incomplete.

    Args:
        loop: its number.
        slots: both slots of each rank.

    Raises:
        HvdFtError: a rank's part of that cut is not there.
    """
    published = {
        rank: next((slot for slot in both if slot.published), None) for rank, both in slots.items()
    }
    cuts = [slot.cut for slot in published.values() if slot and slot.is_shared]
    chosen = []
    for rank, both in slots.items():
        own = published[rank]
        if own is not None and own.is_shared:
            cut = min(cuts)
            own = next((slot for slot in both if slot.is_shared and slot.cut == cut), None)
        if published[rank] is not None and (own is None or not own.word):
            raise HvdFtError(
                f"the part of rank {rank} of its snapshot of training loop {loop} is lost with its "
                "host: start the job again, from its last checkpoint if it has one"
            )
        begun = own or replace(_NO_SLOT, begin=both[0].begin, ended=both[0].ended)
        number = both.index(own) if own is not None else 0
        if begun.begin:
            chosen.append(Chosen(rank, loop, number, begun))
    return chosen


def bring_back(
    channel: NodeChannel, mine: Rejoining | None, ranks: range, node: int, left: Sequence[int]
) -> None:
    """Brings the snapshots of a lost node's ranks back. Collective.

    Args:
        channel: of all agents.
        mine: this node's arena, in its first agent.
        ranks: of the lost node.
        node: the lost one, which has copied the log.
        left: the nodes that are not lost, first the one that has their parts.

    Raises:
        HvdFtError: a part is missing, or there is no room.
    """
    buddy = left[0]
    told = channel.at([buddy], "finding the snapshots of lost ranks", lambda: _find(mine, ranks))
    chosen = [Chosen(rank, loop, number, Slot(*slot)) for rank, loop, number, slot in told[buddy]]
    with_part = [each for each in chosen if each.slot.word]
    received: list[memoryview] = []

    if channel.is_at(buddy):
        received = [_bytes_of(mine, each) for each in with_part]
    elif channel.is_at(node):
        received = [memoryview(bytearray(each.slot.bytes)) for each in with_part]
    channel.pass_on(
        "copying the parts of lost ranks",
        buddy,
        node,
        [each.slot.bytes for each in with_part],
        received,
    )
    parts_of = dict(zip(with_part, received or [_NOTHING] * len(with_part), strict=True))
    shared = _bring_shared(channel, mine, parts_of, node, left)

    def write() -> None:
        assert mine
        for each in chosen:
            _write(mine, each, parts_of.get(each), shared.get(each.loop), ranks)

    channel.at([node], "writing the snapshots of lost ranks", write)


def _find(mine: Rejoining | None, ranks: range) -> list[Any]:
    assert mine
    found: list[Chosen] = []
    loop = 0
    while True:
        slots = {r: [mine.slot(r, loop, slot)[0] for slot in range(_SLOTS)] for r in ranks}
        if not any(both[0].begin for both in slots.values()):
            break
        found += choose(loop, slots)
        loop += 1
    return [[each.rank, each.loop, each.number, list(vars(each.slot).values())] for each in found]


def _bytes_of(mine: Rejoining | None, each: Chosen) -> memoryview:
    assert mine
    slot, data = mine.slot(each.rank, each.loop, each.number)
    if data is None or slot.word != each.slot.word:
        raise HvdFtError(f"the part of rank {each.rank} has changed; start the job again")
    return data


def _bring_shared(
    channel: NodeChannel,
    mine: Rejoining | None,
    chosen: Mapping[Chosen, memoryview],
    node: int,
    left: Sequence[int],
) -> dict[int, memoryview]:
    """Returns, on the new node, the data that its ranks had shared, by loop."""
    made: dict[int, memoryview] = {}
    for each in {each.loop: each for each in chosen if each.slot.is_shared}.values():
        told = channel.at(
            left,
            "finding the data that lost ranks had shared",
            partial(_donor_sizes, mine, each),
        )
        source = next((place for place in left if told[place]), None)
        if source is None:
            raise HvdFtError(
                f"the data that rank {each.rank} had shared is lost with its host: start the "
                "job again, from its last checkpoint if it has one"
            )
        views: list[memoryview] = []
        if channel.is_at(source):
            views = _donor(mine, each)
        elif channel.is_at(node):
            views = [memoryview(bytearray(size)) for size in told[source]]
        channel.pass_on(
            "copying the data that lost ranks had shared", source, node, told[source], views
        )

        def put_together(each: Chosen = each, views: Sequence[memoryview] = tuple(views)) -> None:
            from hvd_ft.worker.lost_rank import Donor, shared_contents
            from hvd_ft.worker.shared_contents import Place

            # Ranks that share a cut have taken it at one position.
            donor = Donor(views[0], views[1:], Place(each.slot.cut, each.slot.position))
            shared = shared_contents(chosen[each], donor)
            made[each.loop] = shared.data

        channel.at([node], "putting together what lost ranks had shared", put_together)
    return made


def _donor_sizes(mine: Rejoining | None, lost: Chosen) -> list[int]:
    return [view.nbytes for view in _donor(mine, lost)]


def _donor(mine: Rejoining | None, lost: Chosen) -> list[memoryview]:
    """Returns a rank's part of the same cut and the stripes of its node; nothing without these."""
    assert mine
    ranks = mine.local_ranks()
    slots = [mine.slot(ranks.start, lost.loop, slot)[0] for slot in range(_SLOTS)]
    word = next((slot.word for slot in slots if slot.is_shared and slot.cut == lost.slot.cut), None)
    own, stripes = None, []
    for rank in ranks:
        for slot in range(_SLOTS):
            found, data = mine.slot(rank, lost.loop, slot)
            if data is not None and found.word == word:
                stripes.append(data[found.stripe :])
                own = data[: found.stripe] if own is None else own
                break
    return [own, *stripes] if own is not None and len(stripes) == len(ranks) else []


def _write(
    mine: Rejoining,
    each: Chosen,
    part: memoryview | None,
    shared: memoryview | None,
    ranks: range,
) -> None:
    """Writes a rank's snapshot, with its stripe of the data that its node shares."""
    slot = each.slot
    if part is not None:
        from hvd_ft.worker.shared_contents import layout, stripe

        size = shared.nbytes if shared is not None and slot.is_shared else 0
        number, count = each.rank - ranks.start, len(ranks)
        at, total = layout(part.nbytes, size, number, count)
        begin, to = stripe(size, number, count)
        room = mine.slot_room(each.rank, each.loop, each.number, total)
        room[: part.nbytes] = part
        if shared is not None and size:
            room[at : at + to - begin] = shared[begin:to]
        slot = replace(slot, bytes=total, stripe=at if size else 0)
    mine.publish_slot(each.rank, each.loop, each.number, slot)
