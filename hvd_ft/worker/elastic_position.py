"""Where a loop written for Horovod Elastic goes on after a commit. Pure.

There all ranks go back to the last commit, so it does not matter much what `state.batch` is then:
`for state.batch in range(state.batch, n)` commits with the number of the batch that it has trained
with, and trains with it once more. Here one rank starts again while the others go on, so it has to
begin at just the batch that comes next. Which one that is, is seen by when the script has assigned
`state.batch` and `state.epoch`: before collectives (then that batch is done), or after them.
"""

from dataclasses import dataclass

from hvd_ft.errors import HvdFtError


@dataclass
class ElasticPosition:
    """The counters of a loop.

    Attributes:
        epoch: as assigned.
        batch: as assigned.
        op: number of the collectives that this rank has done when the loop begins, or goes on.
        counts_batches: whether the script assigns `batch` at all.
        committed: epoch and batch with which the loop goes on after the latest commit, if any.
        is_sure: whether that is certain: an earlier commit has shown how the script counts.
    """

    epoch: int
    batch: int
    op: int
    counts_batches: bool = False
    committed: tuple[int, int] | None = None
    is_sure: bool = False

    def __post_init__(self) -> None:
        self._batch_op = self._committed_op = self.op  # when it was assigned, and committed
        self._epoch_op: int | None = None
        self._epoch_over = False  # as the script has set `batch` back
        self._known = self.counts_batches

    def assign_epoch(self, epoch: int, op: int) -> None:
        """The script assigns `epoch`, when it has done `op` collectives."""
        if epoch != self.epoch:  # a loop that is entered assigns the same
            self.epoch, self._epoch_op, self._epoch_over = epoch, op, False

    def assign_batch(self, batch: int, op: int) -> None:
        """The script assigns `batch`, when it has done `op` collectives."""
        done = op > self._batch_op
        if batch < self.batch or (done and batch == self.batch):
            self._epoch_over = self._epoch_op != op
        elif done:
            self._epoch_over = False
        self.batch, self._batch_op, self.counts_batches = batch, op, True

    def next(self, op: int) -> tuple[int, int]:
        """Returns epoch and batch with which the loop goes on.

        Args:
            op: number of the collectives that are done.
        """
        epoch_op = self.op if self._epoch_op is None else self._epoch_op
        if self._epoch_over or (not self.counts_batches and op > epoch_op):
            return self.epoch + 1, self.batch
        done = self.counts_batches and op > self._batch_op
        return self.epoch, self.batch + done

    def commit(self, op: int) -> bool:
        """The script commits, when it has done `op` collectives.

        Returns:
            Whether a step has ended: collectives were done, or a counter has changed.

        Raises:
            HvdFtError: collectives were done, but no counter has changed.
        """
        before = self.committed if self._known == self.counts_batches else None
        now, since = self.next(op), op > self._committed_op
        if before is not None and not since and now == before:
            return False
        if before is not None and since and now <= before:
            raise HvdFtError(
                f"state.commit() finds the training at epoch {self.epoch}, batch {self.batch}, "
                "where it was at an earlier commit, so a restarted process could not go on: let "
                "the script count its batches in state.batch, and its epochs in state.epoch"
            )
        self.committed, self._committed_op, self._known = now, op, self.counts_batches
        self.is_sure = before is not None
        return True
