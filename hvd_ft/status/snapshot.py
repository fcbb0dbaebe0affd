"""The status of a job at one moment: plain data, which is also what `hvdft status --json` prints.

The JSON schema in docs/reference/ is made of these types. A field may be added within a version of
the schema; whatever else changes makes another version.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA: Literal["hvd_ft.status/1"] = "hvd_ft.status/1"

RankState = Literal["starting", "running", "waiting", "restarting", "replaying", "done"]
JobState = Literal["starting", "running", "recovering", "over", "dead"]
Awaited = Literal["announcement", "contribution", "sum", "rank"]


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a job."""


class Wait(_Facts, frozen=True):
    """What a rank waits for.

    Attributes:
        kind: `announcement`: that other ranks want the same op; `contribution`: their part of an
            agreed op; `sum`: that a complete op is summed and sent round the ring; `rank`: a rank
            that is away.
        ranks: those it waits for; empty if that is not known.
        op: the id of the op; null if it is not agreed yet, or it is no op.
    """

    kind: Awaited
    ranks: list[int] = []
    op: int | None = None


class RankSnapshots(_Facts, frozen=True):
    """The snapshots of a rank.

    Attributes:
        count: how many were published, over all incarnations.
        every_steps: steps from the latest one to the next; 0 before the first.
    """

    count: int
    every_steps: int


class RankTimes(_Facts, frozen=True):
    """How a rank has spent its time since the job began, measured on its own node.

    All steps are equally long, so the slow rank is the one that waits least (docs/how-to/slow.md).

    Attributes:
        compute_seconds: until its script had handed over the last tensor of each round.
        wait_seconds: then blocked, while other ranks had not handed over theirs.
        copy_seconds: blocked while an op was under way: copies and sums on its node …
        network_seconds: … or nothing was left to do there, and other nodes' parts were missing.
    """

    compute_seconds: float
    wait_seconds: float
    copy_seconds: float
    network_seconds: float

    @property
    def total_seconds(self) -> float:
        """The time of all rounds."""
        return self.compute_seconds + self.wait_seconds + self.copy_seconds + self.network_seconds


class Lateness(_Facts, frozen=True):
    """How late a rank came to its latest ops, against the ranks of its node, by the node's clock.

    Attributes:
        ops: of so many ops the rest is the mean.
        after_first_seconds: its script handed tensors over so much later than that of the first.
        after_median_seconds: likewise, than the median; negative if it was earlier.
        waited_seconds: how long it then waited, until all ranks had announced theirs.
    """

    ops: int
    after_first_seconds: float
    after_median_seconds: float
    waited_seconds: float


class OpLateness(_Facts, frozen=True):
    """How late a rank came to one op, against the ranks of its node, by the node's clock.

    Attributes:
        rank: its number.
        after_first_seconds: its script handed tensors over so much later than that of the first.
        after_median_seconds: likewise, than the median; negative if it was earlier.
        waited_seconds: how long it then waited, until all ranks had announced theirs.
        under_way_seconds: how long the op then took on this rank; null if it is not over.
    """

    rank: int
    after_first_seconds: float
    after_median_seconds: float
    waited_seconds: float
    under_way_seconds: float | None


class RankStatus(_Facts, frozen=True):
    """The status of one rank.

    Attributes:
        rank: its number.
        host: where it is; null if that is not known here.
        here: whether it is on the node that was read; the others are known through the mirror.
        state: what it does.
        state_seconds: for how long.
        left: whether it has left the job (fewer ranks): `no`, `for good`, or `may return`.
        incarnation: how often it was restarted.
        pid: of its worker, on its host; null if there is none.
        step: of its training loop; 0 before the first.
        steps_per_second: measured by this command; null if too few steps were seen.
        executed: ops that it has executed.
        contributed: ops to which it has contributed all of its input.
        pending: tensors that its script waits for.
        waits_for: what it waits for; null if it computes, or is away.
        times: how it has spent its time.
        snapshots: those of the rank.
        lateness: how late it came to its latest ops; null for ranks elsewhere, or alone on a node.
    """

    rank: int
    host: str | None
    here: bool
    state: RankState
    state_seconds: float
    left: Literal["no", "for good", "may return"]
    incarnation: int
    pid: int | None
    step: int
    steps_per_second: float | None
    executed: int
    contributed: int
    pending: int
    waits_for: Wait | None
    times: RankTimes
    snapshots: RankSnapshots
    lateness: Lateness | None = None


class NodeMemory(_Facts, frozen=True):
    """The memory of a node's arenas, in bytes; docs/how-to/reports.md has the kinds.

    Attributes:
        first_rank: of the node.
        total: of everything.
        most: the most that `total` has been.
        limit: of the total.
        shared_state: snapshots, of what the node's ranks share.
        private_state: snapshots, of what each rank has of its own.
        log: of the op log, ops that truncation can free.
        kept: of the op log, ops that stay as long as the job lives.
        messages: between ranks.
        input_areas: of the node's ranks.
        control: of the control area.
    """

    first_rank: int
    total: int
    most: int
    limit: int
    shared_state: int
    private_state: int
    log: int
    kept: int
    messages: int
    input_areas: int
    control: int


class LogStatus(_Facts, frozen=True):
    """The op log.

    Attributes:
        ops: how many were agreed.
        held: how many of them the log still has.
    """

    ops: int
    held: int


class Recovery(_Facts, frozen=True):
    """A death of a worker, and its rank's way back.

    Attributes:
        rank: whose worker died.
        incarnation: that died.
        cause: how it ended.
        seconds_ago: when its death was seen.
        parts: seconds of each part that is over, by its name in reports.
        total_seconds: until the rank was back; null if it is not.
    """

    rank: int
    incarnation: int
    cause: str
    seconds_ago: float
    parts: dict[str, float]
    total_seconds: float | None


class Checkpoints(_Facts, frozen=True):
    """The checkpoints of the job, as far as its latest events tell.

    Attributes:
        written: how many are complete.
        under_way: whether one is being written.
        latest_seconds_ago: when the latest was complete; null if there is none.
    """

    written: int = 0
    under_way: bool = False
    latest_seconds_ago: float | None = None


class Member(_Facts, frozen=True):
    """A host's place in the job.

    Attributes:
        host: its name, as the user gave it.
        first_rank: of the place.
        ranks: how many it has.
        leaving: whether they leave the job, or have left it.
    """

    host: str
    first_rank: int
    ranks: int
    leaving: bool


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a job, as one of its nodes knows it.

    Attributes:
        schema: version of this form.
        job: its id.
        state: of the whole job; `over`: all ranks are done; `dead`: no process of it is left here.
        date: of the reading, ISO 8601.
        host: the host on which it was read.
        rank_0_here: whether this is rank 0's node; others know the other nodes through the mirror.
        news_seconds: age of the latest news of other nodes; null if all ranks are here, or there
            was none yet.
        size: number of ranks.
        step: of the slowest rank that trains; 0 before the first.
        steps_per_second: of rank 0 if it is known, else of the first rank of which it is.
        generation: of the agents.
        epoch: of the membership; 0 if all ranks are on one host.
        members: the hosts; empty if all ranks are on one host.
        ranks: all of them.
        log: the op log.
        memory: of each node that is known here.
        recoveries: the latest 64, in order of time.
        checkpoints: of the job.
        diverged: how often ranks' variables were found to differ.
        report: path of the report on rank 0's host; null if there is none, or it is not known here.
    """

    schema: Literal["hvd_ft.status/1"] = SCHEMA
    job: str
    state: JobState
    date: str
    host: str
    rank_0_here: bool
    news_seconds: float | None
    size: int
    step: int
    steps_per_second: float | None
    generation: int
    epoch: int
    members: list[Member]
    ranks: list[RankStatus]
    log: LogStatus
    memory: list[NodeMemory]
    recoveries: list[Recovery]
    checkpoints: Checkpoints
    diverged: int
    report: str | None


def state_of(ranks: list[RankStatus]) -> JobState:
    """Returns the state of a job from those of its ranks."""
    there = [rank.state for rank in ranks if rank.left == "no"] or [rank.state for rank in ranks]
    if all(state == "done" for state in there):
        return "over"
    if any(state in ("restarting", "replaying") for state in there):
        return "recovering"
    return "starting" if "starting" in there else "running"


def step_of(ranks: list[RankStatus]) -> int:
    """Returns the step of the slowest rank that trains; 0 before the first one."""
    return min(
        (r.step for r in ranks if r.left == "no" and r.state != "done" and r.step), default=0
    )
