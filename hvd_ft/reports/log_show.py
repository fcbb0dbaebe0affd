"""`hvdft log show`: prints a job's op log, what autotuning has changed, the ring, and messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from rich.console import Console
from rich.table import Table

from hvd_ft import native
from hvd_ft.job.running import find_job
from hvd_ft.native import logs as native_logs
from hvd_ft.native.logs import EdgeEnd, PairOfRanks


@dataclass(frozen=True)
class Node:
    """A member of the ring: a node, named by its first rank, and its ends of two edges."""

    first: int
    received: EdgeEnd
    sent: EdgeEnd


@dataclass(frozen=True)
class Logs:
    """The contents of a job's logs.

    Attributes:
        ops: number of agreed ops. held: how many of them the log still has.
        last: signature of the last op; "" if it is truncated.
        ring: the nodes in their order; empty if there is one.
        pairs: pairs of ranks with messages.
        tuned: ops by which autotuning has changed a parameter, with their signatures.
    """

    ops: int
    held: int
    last: str
    ring: Sequence[Node]
    pairs: Sequence[PairOfRanks]
    tuned: Sequence[tuple[int, str]] = ()


def show(job: str | None, console: Console) -> None:
    """Prints the logs of a job that runs on this node.

    Args:
        job: the job's id or directory; None: the only job that runs here.
        console: the console to print on.

    Raises:
        HvdFtError: there is no such job, or there are several and none is named.
    """
    observer = native.Observer(find_job(job))
    try:
        logs = read(observer)
    finally:
        observer.close()
    console.print(op_log_line(logs), highlight=False, markup=False, soft_wrap=True)
    for line in tuned_lines(logs.tuned):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if logs.ring:
        console.print(ring_table(logs.ring))
    if logs.pairs:
        console.print(pairs_table(logs.pairs))


def read(observer: native.Observer) -> Logs:
    """Reads a job's logs in their present state."""
    ranks = range(observer.size)
    ops = observer.log_length
    nodes = []
    for rank in ranks:
        received = native_logs.ring_end(observer, rank, sent=False)
        sent = native_logs.ring_end(observer, rank, sent=True)
        if received and sent:
            nodes.append(Node(rank, received, sent))
    pairs = (native_logs.pair_of_ranks(observer, *pair) for pair in product(ranks, ranks))
    return Logs(
        ops=ops,
        held=observer.log_records,
        last=(native_logs.signature(observer, ops - 1) or "") if ops else "",
        ring=nodes,
        pairs=[pair for pair in pairs if pair],
        tuned=[
            (op, native_logs.signature(observer, op) or "") for op in native_logs.tuned(observer)
        ],
    )


def op_log_line(logs: Logs) -> str:
    """Returns a line with the op log's length and its last op."""
    text = f"op log: {logs.ops} ops, of which {logs.held} are held"
    first, *more = logs.last.splitlines() or [""]
    others = f" and {len(more)} more" if more else ""
    return f"{text}; op {logs.ops - 1}: {first}{others}" if first else text


def tuned_lines(tuned: Sequence[tuple[int, str]]) -> list[str]:
    """Returns a line for each change by autotuning, below the op log's."""
    return [f"  op {op} {text}" for op, text in tuned]


def ring_table(ring: Sequence[Node]) -> Table:
    """Puts the pair logs of the ring between nodes into a table, a row for each edge.

    The receiver's position is the truth: from there the edge would continue. The sender's position
    is ahead of it by the segments under way.
    """
    table = Table("edge", "sent up to", "received up to", box=None, header_style="")
    for i, node in enumerate(ring):
        successor = ring[(i + 1) % len(ring)]
        edge = f"node of rank {node.first} → {successor.first}"
        table.add_row(edge, str(node.sent), str(successor.received))
    return table


def pairs_table(pairs: Sequence[PairOfRanks]) -> Table:
    """Puts the message logs into a table, a row for each pair of ranks."""
    table = Table(box=None, header_style="")
    table.add_column("messages")
    for name in ("sent", "received", "on the way", "decided", "MiB"):
        table.add_column(name, justify="right")
    for pair in pairs:
        table.add_row(
            f"rank {pair.source} → {pair.dest}",
            *(str(n) for n in (pair.sent, pair.received, max(0, pair.sent - pair.received))),
            str(pair.decided_before),
            f"{pair.memory_bytes / (1 << 20):.1f}",
        )
    return table
