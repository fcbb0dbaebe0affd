"""The batches that a Trainer fetches, as one loader of which a position can be kept."""

from collections.abc import Callable, Iterator
from typing import Any

from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.pytorch.utilities.combined_loader import CombinedLoader


class FetchedData:
    """The loaders of a training as one loader.

    Args:
        combined: what Lightning has made of them.

    Attributes:
        last: the batch that was drawn last; None unless `keeps_last`.
        keeps_last: whether it is kept.
    """

    def __init__(self, combined: CombinedLoader) -> None:
        self._combined = combined
        self.keeps_last = False
        self.last: Any = None
        loaders = combined.flattened
        self.sampler = Samplers(loaders)
        self.persistent_workers = any(
            getattr(each, "persistent_workers", False) for each in loaders
        )
        # where generators are looked for
        self.dataset = [getattr(each, "dataset", each) for each in loaders]
        self.generator = [getattr(each, "generator", None) for each in loaders]
        self.collate_fn = [getattr(each, "collate_fn", None) for each in loaders]

    def __iter__(self) -> Iterator[Any]:
        return Drawn(self, iter(self._combined))


class EnteredData:
    """Stands in the place of Lightning's CombinedLoader, and says where a pass over it begins.

    Args:
        combined: Lightning's.
        enter: called where a pass begins; returns its batches.
    """

    def __init__(self, combined: CombinedLoader, enter: Callable[[], Iterator[Any]]) -> None:
        self._combined = combined
        self._enter = enter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._combined, name)

    def __len__(self) -> int:
        return len(self._combined)

    def __iter__(self) -> Iterator[Any]:
        return self._enter()


class Drawn:
    """Draws from loaders, and keeps the latest batch if that is wanted."""

    def __init__(self, data: FetchedData, batches: Iterator[Any]) -> None:
        self._data = data
        self._batches = batches

    def __iter__(self) -> "Drawn":
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        if self._data.keeps_last:
            self._data.last = batch
        return batch


class Samplers:
    """The samplers of some loaders, as one whose epoch can be read and set."""

    def __init__(self, loaders: list[Any]) -> None:
        self._loaders = loaders

    @property
    def samplers(self) -> list[Any]:
        """All of them: those that draw indices, and those that make batches of these."""
        found = []
        for loader in self._loaders:
            below = getattr(loader, "batch_sampler", None)
            found += [getattr(loader, "sampler", None), below, getattr(below, "sampler", None)]
        return [each for each in found if each is not None]

    @property
    def epoch(self) -> int | None:
        """That of the first sampler that has one."""
        return next((each.epoch for each in self.samplers if hasattr(each, "epoch")), None)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        for loader in self._loaders:
            _set_sampler_epoch(loader, epoch)
