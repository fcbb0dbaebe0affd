"""Deals a data set's samples out to ranks whose number may change, whatever the framework."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sized
from typing import Any

import numpy as np

from hvd_ft.errors import HvdFtError
from hvd_ft.worker.sharding import epoch_order, shard, steps_left


class SampleDealer(ABC):
    """What the `ElasticSampler` of each framework has in common; its users read about it there.

    Args:
        dataset: the data set, or any object of the same length, or that length as a number.
        shuffle: whether each epoch has its own order, drawn from `seed` and the epoch's number.
        seed: 0 or more, the same on all ranks.

    Raises:
        HvdFtError: there are no samples, or the seed is negative.
    """

    def __init__(self, dataset: Sized | int, shuffle: bool = True, seed: int = 0) -> None:
        self.samples = len(dataset) if isinstance(dataset, Sized) else int(dataset)
        self.epoch = 0
        self.processed_num = 0
        self._seed = int(seed) if shuffle else None
        self._order: tuple[int, np.ndarray] | None = None  # and its epoch
        self._size: int | None = None  # of ranks to which samples are dealt by iteration
        if self.samples < 1:
            raise HvdFtError("ElasticSampler has nothing to deal out: give it one sample or more")
        if seed < 0:
            raise HvdFtError(f"ElasticSampler cannot shuffle by seed {seed}: give it 0 or more")

    @staticmethod
    @abstractmethod
    def present_ranks() -> tuple[int, int]:
        """Returns this process's rank and the number of ranks, as they are now."""

    def __len__(self) -> int:
        """Returns how many samples this rank still gets in this epoch."""
        return self.steps(1)

    def __iter__(self) -> Iterator[int]:
        """Yields the indices that this rank still gets in this epoch.

        After a change of the number of ranks it continues after the recorded samples.
        """
        ranks, indices = self.present_ranks(), iter(self.rest(1, False))
        while True:
            if ranks != (now := self.present_ranks()):
                ranks, indices = now, iter(self.rest(1, False))
            index = next(indices, None)
            if index is None:
                return
            yield int(index)

    def batches(self, batch_size: int, drop_remainder: bool = False) -> Iterator[np.ndarray]:
        """Yields the indices of each remaining step of the epoch: int64, [batch_size].

        A step is dealt out to the ranks present when it is drawn, and counted then. All ranks have
        to draw it between the same two collectives.

        Args:
            batch_size: samples in a step of one rank; at least 1.
            drop_remainder: whether an epoch's last step is left out if there are not enough samples
                for it. Otherwise it is shorter, on all ranks.

        Raises:
            HvdFtError: `batch_size` is less than 1.
        """
        while self.steps(batch_size, drop_remainder):
            rank, size = self.present_ranks()
            begin = self.processed_num
            self.advance(batch_size, size)
            yield shard(self._indices(), begin, self.processed_num, rank, size)

    def steps(self, batch_size: int, drop_remainder: bool = False) -> int:
        """Returns how many steps are left in the epoch, with the present number of ranks.

        Args:
            batch_size: as for `batches`.
            drop_remainder: as for `batches`.

        Raises:
            HvdFtError: `batch_size` is less than 1.
        """
        check_batch_size(batch_size)
        of_step = batch_size * self.present_ranks()[1]
        return steps_left(self.samples, self.processed_num, of_step, drop_remainder)

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch; call it at the end of the previous epoch.

        Args:
            epoch: its number, 0 or more.
        """
        self.epoch = int(epoch)
        self.processed_num = 0

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Counts a step that was drawn by iteration; call it after the step, before the commit.

        Args:
            batch_idx: not used; Horovod's sampler has it.
            batch_size: samples in this step of one rank.
        """
        self.advance(batch_size, self._size or self.present_ranks()[1])

    def advance(self, batch_size: int, size: int) -> None:
        """Counts the samples of a step as dealt out.

        Args:
            batch_size: of one rank.
            size: number of ranks to which they were dealt.
        """
        self.processed_num = min(self.samples, self.processed_num + batch_size * size)

    def state_dict(self) -> dict[str, Any]:
        """Returns what `load_state_dict` needs, the same on all ranks."""
        order = [self.samples, self._seed]
        return {"epoch": self.epoch, "processed_num": self.processed_num, "order": order}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues where `state_dict` was called, with any number of ranks.

        Args:
            state_dict: returned by `state_dict`.

        Raises:
            HvdFtError: it comes from a sampler with another order.
        """
        samples, seed = state_dict["order"]
        if (samples, seed) != (self.samples, self._seed):
            raise HvdFtError(
                f"the sampler continues from one with {_describe(samples, seed)}, but the script "
                f"has made it with {_describe(self.samples, self._seed)}: make it the same, or "
                "samples are left out"
            )
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]

    def reset(self) -> None:  # noqa: B027 (it has nothing to do)
        """Does nothing: the sampler looks up the number of ranks whenever it draws."""

    def _indices(self) -> np.ndarray:
        if self._order is None or self._order[0] != self.epoch:
            self._order = self.epoch, epoch_order(self.samples, self.epoch, self._seed)
        return self._order[1]

    def rest(self, batch_size: int, drop_remainder: bool) -> np.ndarray:
        """Returns the indices that this rank still gets in this epoch: int64, of any length."""
        rank, self._size = self.present_ranks()
        begin, of_step = self.processed_num, batch_size * self._size
        steps = steps_left(self.samples, begin, of_step, drop_remainder)
        return shard(self._indices(), begin, begin + steps * of_step, rank, self._size)


def check_batch_size(batch_size: int) -> None:
    """Raises HvdFtError unless a step can have so many samples."""
    if batch_size < 1:
        raise HvdFtError(f"a step cannot have {batch_size} samples: give batch_size 1 or more")


def _describe(samples: int, seed: int | None) -> str:
    return f"{samples} samples, " + ("not shuffled" if seed is None else f"seed {seed}")
