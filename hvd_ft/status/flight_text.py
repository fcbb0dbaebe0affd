"""A flight record as text, for `hvdft report FILE`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hvd_ft.errors import HvdFtError
from hvd_ft.status.flight_record import RECORD_SCHEMA, FlightRecord, NodeRecord, OpRecord
from hvd_ft.status.table import rank_words, ranks_table
from hvd_ft.status.waits import blamed
from hvd_ft.system.json_text import read_json_as

_MOST_BYTES = 256 << 20
_BEGINNING = f'{{"schema":"{RECORD_SCHEMA.partition("/")[0]}/'.encode()


def is_flight_record(path: str) -> bool:
    """Returns whether a file is a flight record of any version; a report is not."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False  # the reader of reports says why


def read_record(path: str) -> FlightRecord:
    """Reads a flight record.

    Raises:
        HvdFtError: it cannot be read, or is damaged, or of another version.
    """
    try:
        with open(path, "rb") as file:
            return read_json_as(file.read(_MOST_BYTES), FlightRecord)
    except OSError as error:
        raise HvdFtError(f"cannot read {path} ({error.strerror}): give another file") from error
    except ValueError as error:
        raise HvdFtError(
            f"{path} is damaged, or a flight record of another version ({error}); read it with the "
            "hvdft that wrote it"
        ) from error


def pieces(record: FlightRecord) -> list[RenderableType]:
    """Lays a record out."""
    found: list[RenderableType] = [Text(f"flight record of job {record.job}, {record.date}")]
    found += [Text(f"{reason.kind}: {reason.text}") for reason in record.reasons]
    for (host, why), ranks in groupby(record.missing, lambda each: (each.host, each.why)):
        numbers = rank_words([each.rank for each in ranks])
        found.append(Text(f"missing: {numbers}{f' on {host}' if host else ''}: {why}"))
    if awaited := _awaited(record.nodes):
        found.append(Text(awaited))
    for node in record.nodes:
        found += _node(node)
    for rank, text in sorted(record.stacks.items(), key=lambda pair: (len(pair[0]), pair[0])):
        found.append(Text(f"\nstacks of rank {rank}:\n{text.rstrip()}"))
    return found


def _awaited(nodes: Sequence[NodeRecord]) -> str:
    waiting = {
        rank.rank: rank.waits_for
        for node in nodes
        for rank in node.status.ranks
        if rank.waits_for is not None
    }
    counts = blamed(waiting)
    texts = [f"rank {rank} keeps {n} rank{'s' * (n > 1)} waiting" for rank, n in counts.items()]
    return "; ".join(texts[:8])


def _node(node: NodeRecord) -> list[RenderableType]:
    status = node.status
    found: list[RenderableType] = [
        Text(f"\nnode of {rank_words([rank.rank for rank in status.ranks])} on {status.host}:"),
        ranks_table(status, len(status.ranks)),
    ]
    late = [each.rank for each in node.progress if not each.coordinator_has_it]
    if late:
        found.append(Text(f"announced, but not yet received by rank 0: {rank_words(late)}"))
    if node.received and node.sent:
        found.append(Text(f"ring: received {node.received.text}; sent {node.sent.text}"))
    if node.ops:
        found.append(_ops(node))
    return found


def _last(op: OpRecord) -> str:
    if len(op.lateness) < 2:
        return ""
    last = max(op.lateness, key=lambda each: each.after_first_seconds)
    return f"{last.rank}, {last.after_first_seconds * 1000:.1f} ms"


def _ops(node: NodeRecord) -> Table:
    everyone = [rank.rank for rank in node.status.ranks]
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("op", "bytes", "reduced", "not contributed", "not received", "last", "what"):
        table.add_column(name, justify="right" if name in ("op", "bytes", "reduced") else "left")
    for op in node.ops:
        lacks = [rank for rank in everyone if rank not in op.contributed]
        awaits = [rank for rank in everyone if rank not in op.executed]
        first, *more = op.text.splitlines() or [""]
        table.add_row(
            str(op.op),
            str(op.bytes),
            f"{op.reduced}/{op.segments}",
            rank_words(lacks) if lacks else "",
            rank_words(awaits) if awaits else "",
            _last(op),
            Text(
                f"{first} and {len(more)} more" if more else first,
                no_wrap=True,
                overflow="ellipsis",
            ),
        )
    return table
