"""The pair logs of a ring, readable: how far each edge has come, as its two ends know it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True)
class PairEnd:
    """How far an edge has come, as one of its ends has noted it (``core/pair_log.h``)."""

    generation: int
    op: int
    position: int


@dataclass(frozen=True)
class PairLog:
    """A ring member's ends of its two edges."""

    received: PairEnd
    sent: PairEnd


def pair_log(logs: Sequence[PairLog], segments: Mapping[int, int]) -> Table:
    """Puts the pair logs of all members of a ring into a table, a row for each edge.

    Args:
        logs: Of each member, in the members' order.
        segments: How many segments a step has, for each op id of which that is known.

    Returns:
        Per edge the generation in which it was made, how far its receiver has come (the truth, from
        which it would go on), what its sender believes, and how many segments lie between.
    """
    table = Table("edge", "generation", "received up to", "sent up to", "on the way", box=None)
    for member, log in enumerate(logs):
        successor = (member + 1) % len(logs)
        received, sent = logs[successor].received, log.sent
        table.add_row(
            f"{member} → {successor}",
            _generations(sent, received),
            _place(received, len(logs), segments),
            _place(sent, len(logs), segments),
            # Between two ops it depends on the size of the first, of which all may be cut.
            str(max(0, sent.position - received.position)) if sent.op == received.op else "?",
        )
    return table


def _generations(sent: PairEnd, received: PairEnd) -> str:
    if sent.generation == received.generation:
        return str(received.generation)
    return f"{received.generation}, sender {sent.generation}"


def _place(end: PairEnd, members: int, segments: Mapping[int, int]) -> str:
    if end.position == 0:
        return f"op {end.op}, its beginning"
    if end.op not in segments:
        return f"op {end.op}, position {end.position}"
    step, segment = divmod(end.position, segments[end.op])
    half = members - 1
    phase = "REDUCE_SCATTER" if step < half else "ALLGATHER"
    return f"op {end.op}, {phase} step {step % half} segment {segment}"
