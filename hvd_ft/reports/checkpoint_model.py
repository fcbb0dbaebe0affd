"""What a job's failures would have cost with checkpoints alone: a model, with its numbers. Pure.

Each time that ranks were away, all ranks would have been started again and would have loaded the
last checkpoint. So one outage costs

    the job's own start-up, until its last rank took part
  + the training since the last checkpoint: as long as it took, without outages

The checkpoints are those that the job wrote. If it wrote none, there is one after each `interval`
of training. Writing them costs nothing in the model, so it favours checkpoints.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hvd_ft.native.types import Event, EventType
from hvd_ft.reports.accounting import NS, Accounts, Use
from hvd_ft.reports.spans import common, length

INTERVAL_SECONDS = 600.0  # the default of HOROVOD_FT_CHECKPOINT_INTERVAL_SECONDS


@dataclass(frozen=True)
class CheckpointsAlone:
    """The cost of a job's outages if it had only had checkpoints.

    Attributes:
        restart_seconds: Of one restart of all ranks: as the job's start-up.
        redone_seconds: For each outage, the training since the last checkpoint.
        checkpoints: How many the job wrote itself; 0: the model assumes `interval_seconds`.
        interval_seconds: Training from one assumed checkpoint to the next.
        steps_per_second: Of the training, outages left out; None if no step is known.
    """

    restart_seconds: float
    redone_seconds: Sequence[float]
    checkpoints: int
    interval_seconds: float
    steps_per_second: float | None

    @property
    def seconds(self) -> float:
        """The cost of all outages."""
        return self.restart_seconds * len(self.redone_seconds) + sum(self.redone_seconds)

    @property
    def steps_redone(self) -> int | None:
        """How many steps would have been computed again; None if no step is known."""
        if self.steps_per_second is None:
            return None
        return round(sum(self.redone_seconds) * self.steps_per_second)


def checkpoints_alone(
    events: Iterable[Event],
    accounts: Accounts,
    *,
    steps: int = 0,
    interval_seconds: float = INTERVAL_SECONDS,
) -> CheckpointsAlone | None:
    """Applies the model to a run.

    Args:
        events: Of the run.
        accounts: Of the same.
        steps: Of the training, up to the last event; 0: unknown.
        interval_seconds: Assumed, if the job wrote no checkpoints.

    Returns:
        The cost; None if there was no outage, or not all ranks had started before the first one.
    """
    starts = [account.spans[Use.START] for account in accounts.ranks]
    trained_from = max((spans[0][1] for spans in starts if spans), default=accounts.begin_ns)
    if not accounts.outages or accounts.outages[0][0] < trained_from:
        return None

    def trained_ns(until_ns: int) -> int:
        span = [(trained_from, max(until_ns, trained_from))]
        return length(span) - length(common(span, accounts.outages))

    asked: dict[int, int] = {}
    written: list[tuple[int, int]] = []  # when it was complete, and the training in it
    for event in sorted(events, key=lambda event: event.time_ns):
        if event.type is EventType.CHECKPOINT:
            asked[event.detail] = trained_ns(event.time_ns)
        elif event.type is EventType.CHECKPOINTED and event.detail in asked:
            written.append((event.time_ns, asked[event.detail]))
    redone = []
    for start_ns, _ in accounts.outages:
        done_ns = trained_ns(start_ns)
        if written:
            saved = [trained for at_ns, trained in written if at_ns <= start_ns]
            redone.append((done_ns - max(saved, default=0)) / NS)
        else:
            redone.append(done_ns / NS % interval_seconds)
    trained = trained_ns(accounts.end_ns) / NS
    return CheckpointsAlone(
        restart_seconds=(trained_from - accounts.begin_ns) / NS,
        redone_seconds=redone,
        checkpoints=len(written),
        interval_seconds=interval_seconds,
        steps_per_second=steps / trained if steps and trained else None,
    )
