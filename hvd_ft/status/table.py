"""The status of a job as text: a table of its ranks, with lines about the job around it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hvd_ft.status.snapshot import JobStatus, NodeMemory, RankStatus, RankTimes, Wait
from hvd_ft.system.byte_size import in_words

STYLES = {
    "starting": "dim",
    "running": "green",
    "waiting": "yellow",
    "restarting": "bold red",
    "recovering": "bold red",
    "replaying": "magenta",
    "done": "blue",
    "over": "blue",
    "dead": "bold red",
}
_RECOVERIES = 3  # that are shown
_HEIGHT_OF_OTHER_LINES = 16  # one of them may be two


def status_view(status: JobStatus, height: int | None = None) -> RenderableType:
    """Lays out a job's status.

    Args:
        status: of the job.
        height: of the terminal, in lines, if all of it is to fit; None: every rank has a row.
    """
    room = len(status.ranks) if height is None else max(height - _HEIGHT_OF_OTHER_LINES, 3)
    about = [
        *_waited_lines(status),
        *_late_lines(status),
        *_blocked_lines(status),
        *_memory_lines(status),
        *_log_lines(status),
    ]
    return Group(
        headline(status),
        *map(Text, _mirror_lines(status)),
        ranks_table(status, room),
        *map(Text, about),
        *_recovery_lines(status),
    )


def headline(status: JobStatus) -> Text:
    """Returns the line about the whole job."""
    parts = [f"{status.size} ranks" if status.size > 1 else "1 rank"]
    if status.step:
        rate = status.steps_per_second
        parts.append(f"step {status.step}" + (f", {_rate(rate)} steps/s" if rate else ""))
    parts.append(f"generation {status.generation}")
    if status.members:
        leave = [_short(m.host) for m in status.members if m.leaving]
        parts.append(f"{len(status.members)} hosts (epoch {status.epoch})")
        parts += [f"without {', '.join(leave)}"] if leave else []
    state = Text(status.state, style=STYLES[status.state])
    return Text.assemble(f"job {status.job} on {status.host}: ", state, ", ", ", ".join(parts))


def _mirror_lines(status: JobStatus) -> list[str]:
    if all(rank.here for rank in status.ranks):
        return []
    age = "none yet" if status.news_seconds is None else f"{status.news_seconds:.1f} s ago"
    where = "rank 0's node" if status.rank_0_here else "another node than rank 0's"
    return [f"read on {where}; ~: a rank of another node (latest news of these: {age})"]


def ranks_table(status: JobStatus, room: int) -> RenderableType:
    """Lays out the ranks, one a row.

    Args:
        status: of the job.
        room: for how many rows there is room; ranks that run are left out first.
    """
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    several = len({rank.host for rank in status.ranks}) > 1
    table.add_column("rank", justify="right", no_wrap=True)
    if several:
        table.add_column("host", max_width=16, no_wrap=True)
    for name in ("state", "for", "step", "steps/s", "restarts"):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    table.add_column("waits for")  # gives way if the terminal is narrow
    shown = _most_telling(status.ranks, room)
    for rank in shown:
        table.add_row(
            f"{rank.rank}{'' if rank.here else '~'}",
            *([_short(rank.host or "?")] if several else []),
            Text(_state(rank), style=STYLES[rank.state]),
            _seconds(rank.state_seconds) if rank.state_seconds else "-",
            str(rank.step or "-"),
            _rate(rank.steps_per_second),
            str(rank.incarnation or "-"),
            Text(wait_words(rank.waits_for), no_wrap=True, overflow="ellipsis"),
        )
    if more := len(status.ranks) - len(shown):
        return Group(table, Text(f"and {more} more ranks that run", style="dim"))
    return table


def _most_telling(ranks: Sequence[RankStatus], room: int) -> list[RankStatus]:
    if len(ranks) <= room:
        return list(ranks)
    by_news = sorted(ranks, key=lambda rank: (rank.state == "running", rank.rank))
    return sorted(by_news[:room], key=lambda rank: rank.rank)


def _waited_lines(status: JobStatus) -> list[str]:
    """Returns the line that shows who is slow: all steps are equally long, so it waits least."""
    shares = {
        rank.rank: share for rank in status.ranks if (share := _waited(rank.times)) is not None
    }
    if len(shares) < 2:
        return []
    least = min(shares, key=lambda rank: shares[rank])
    median = statistics.median(shares.values())
    return [
        f"waited for slower ranks since the job began: {median:.0%} of the time (median), rank "
        f"{least} least: {shares[least]:.0%}"
    ]


def _waited(times: RankTimes) -> float | None:
    return times.wait_seconds / times.total_seconds if times.total_seconds else None


def _late_lines(status: JobStatus) -> list[str]:
    """Returns the line about the rank that came last to the latest ops of this node."""
    late = {rank.rank: rank.lateness for rank in status.ranks if rank.lateness is not None}
    if not late:
        return []
    last = max(late, key=lambda rank: late[rank].after_first_seconds)
    of = late[last]
    return [
        f"latest {of.ops} ops: rank {last} came {_ms(of.after_first_seconds)} after this node's "
        f"first rank and {_ms(of.after_median_seconds)} after the median (means), then waited "
        f"{_ms(of.waited_seconds)}"
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _blocked_lines(status: JobStatus) -> list[str]:
    """Returns the line that shows what ops cost: that of the rank that waits least for others."""
    found = [rank for rank in status.ranks if rank.times.total_seconds]
    if not found:
        return []
    rank = min(found, key=lambda each: each.times.wait_seconds / each.times.total_seconds)
    times = rank.times
    copy, network = (
        seconds / times.total_seconds for seconds in (times.copy_seconds, times.network_seconds)
    )
    return [
        f"rank {rank.rank} was blocked by ops: {copy:.0%} of the time for copies and sums on its "
        f"node, {network:.0%} for the network"
    ]


def _short(host: str) -> str:
    return host.partition(".")[0]


def _state(rank: RankStatus) -> str:
    return f"{rank.state} (left)" if rank.left != "no" else rank.state


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}" if rate >= 1 else f"{rate:.3f}"


def _seconds(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def wait_words(wait: Wait | None) -> str:
    """Returns in words what a rank waits for."""
    if wait is None:
        return ""
    op = "" if wait.op is None else f" (op {wait.op})"
    if not wait.ranks:
        return {"sum": f"the sum{op}", "announcement": "the agreement"}.get(wait.kind, "") or op
    return f"{rank_words(wait.ranks)}{op}"


def rank_words(ranks: Sequence[int]) -> str:
    """Returns ranks in words, such as `ranks 0-2, 5`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][-1] == rank - 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    words = ", ".join("-".join(map(str, span)) for span in spans)
    return f"rank {words}" if len(ranks) == 1 else f"ranks {words}"


def _memory_lines(status: JobStatus) -> list[str]:
    if not status.memory:
        return []
    node = max(status.memory, key=lambda each: each.total / max(each.limit, 1))
    several = len(status.memory) > 1
    whose = f" of rank {node.first_rank}'s node (the fullest)" if several else ""
    return [f"memory{whose}: {_memory(node)}"]


def _memory(node: NodeMemory) -> str:
    kinds = {
        "shared state": node.shared_state,
        "own state": node.private_state,
        "log": node.log + node.kept,
        "messages": node.messages,
        "inputs": node.input_areas,
        "control": node.control,
    }
    parts = ", ".join(f"{name} {in_words(size)}" for name, size in kinds.items() if size)
    return f"{in_words(node.total)} of {in_words(node.limit)} (most {in_words(node.most)}): {parts}"


def _log_lines(status: JobStatus) -> list[str]:
    counts = [rank.snapshots.count for rank in status.ranks]
    steps = max((rank.snapshots.every_steps for rank in status.ranks), default=0)
    every = f", every {steps} steps" if steps else ""
    snapshots = f"{min(counts)} to {max(counts)} a rank" if len(set(counts)) > 1 else f"{counts[0]}"
    found = [f"log: {status.log.ops} ops, {status.log.held} held; snapshots: {snapshots}{every}"]
    of = status.checkpoints
    if of.written or of.under_way:
        latest = of.latest_seconds_ago
        age = f", the latest {_seconds(latest)} ago" if latest is not None else ""
        now = ", one is being written" if of.under_way else ""
        found.append(f"checkpoints: {of.written}{age}{now}")
    if status.report:
        found.append(f"report: {status.report}")
    return found


def _recovery_lines(status: JobStatus) -> list[Text]:
    lines = []
    if status.diverged:
        text = f"variables diverged {status.diverged} times: see the report"
        lines.append(Text(text, style="bold red"))
    found = status.recoveries
    if not found:
        return lines
    lines.append(Text(f"recoveries: {len(found)}"))
    for each in found[-_RECOVERIES:]:
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in each.parts.items())
        over = each.total_seconds
        back = "not back yet" if over is None else f"back after {over:.1f} s"
        text = f"  rank {each.rank} ({each.cause}) {_seconds(each.seconds_ago)} ago: {back}"
        lines.append(Text(f"{text} ({parts})" if parts else text))
    return lines
