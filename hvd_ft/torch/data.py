"""The position in the data: what each pass over a loader has drawn, and how a restart repeats it.

What draws data has random generators of its own (`Stream`), which begin each pass with a seed from
torch's global generator. So a pass is repeated from its seed, however its draws and those of
training, such as dropout, took turns.

A restarted process makes the pass's iterator again and draws the batches that were drawn before.
With a map-style dataset in this process and one of torch's samplers it draws their indices only.
Persistent workers continue from pass to pass, so all passes over them are repeated.
"""

from collections.abc import Iterator
from typing import Any

from torch.utils import data as torch_data
from torch.utils.data.distributed import DistributedSampler

from hvd_ft.errors import HvdFtError
from hvd_ft.torch.rng import (
    Stream,
    draw_seed,
    generator_state,
    generators_in,
    set_generator_state,
)
from hvd_ft.torch.sampler import ElasticSampler

_END = object()
# They take what they need of random numbers when a pass begins, or from a generator of their own.
_PLAIN_SAMPLERS = (
    torch_data.SequentialSampler,
    torch_data.RandomSampler,
    torch_data.SubsetRandomSampler,
    torch_data.WeightedRandomSampler,
    DistributedSampler,
    ElasticSampler,
)


class DataPosition:
    """What a training loop has drawn from its data.

    Attributes:
        sampler: the ElasticSampler that deals the data out; None: there is none, or no pass has
            begun.
    """

    def __init__(self) -> None:
        self.sampler: ElasticSampler | None = None
        self._passes: list[dict[str, Any]] = []  # those that a restart repeats; the present is last
        self._generators: list[Any] = []
        self._stream = Stream(0)
        self._iterator: Iterator[Any] = iter(())
        self._batch_size = 0

    def begin(self, loader: Any) -> None:
        """Begins a pass over a loader.

        Raises:
            HvdFtError: it has an ElasticSampler, and batches whose size is not known.
        """
        self._look_at(loader)
        if not _keeps_workers(loader):
            self._passes.clear()
        begun = {
            "seed": draw_seed(),
            "drawn": 0,
            "epoch": getattr(_sampler(loader), "epoch", None),
            "generators": [generator_state(each) for each in self._generators],
        }
        if self.sampler is not None:
            ranks = list(self.sampler.present_ranks())
            begun |= {"dealt": self.sampler.processed_num, "ranks": ranks}
        self._passes.append(begun)
        self._begin_pass(loader, begun)

    def batches(self, loader: Any) -> Iterator[Any]:
        """Yields the batches that are left in the pass; counts each before it is used."""
        while True:
            if self._has_other_ranks(self._passes[-1]):
                self.begin(loader)
            batch = self._draw()
            if batch is _END:
                return
            self._passes[-1]["drawn"] += 1
            if self.sampler is not None:
                self.sampler.advance(self._batch_size, self._passes[-1]["ranks"][1])
            yield batch

    def skip(self, loader: Any, batches: int) -> None:
        """Draws batches that stand for those of another number of ranks, in a pass just begun.

        If there are fewer, as the last step was filled up for that number, the pass is over.
        """
        self._passes[-1]["drawn"] += self._repeat(loader, batches)

    def state(self) -> dict[str, Any]:
        """Returns what `resume` needs, for a snapshot."""
        return {
            "passes": [dict(each) for each in self._passes],
            "generators": [generator_state(each) for each in self._generators],
            "stream": self._stream.state(),
        }

    def resume(self, loader: Any, state: dict[str, Any]) -> None:
        """Continues in a pass that an earlier process has begun.

        Args:
            loader: as the earlier process had it.
            state: returned by `state`.

        Raises:
            HvdFtError: the data ends elsewhere.
        """
        self._look_at(loader)
        if self._has_other_ranks(state["passes"][-1]):
            self.begin(loader)
            return
        sampler, self._passes = _sampler(loader), [dict(each) for each in state["passes"]]
        epoch = getattr(sampler, "epoch", None)
        dealt = None if self.sampler is None else self.sampler.processed_num
        for number, begun in enumerate(self._passes, 1):
            if begun["epoch"] is not None and sampler is not None:
                sampler.epoch = begun["epoch"]
            if self.sampler is not None:
                self.sampler.processed_num = begun["dealt"]
            _restore(self._generators, begun["generators"])
            self._begin_pass(loader, begun)
            if self._repeat(loader, begun["drawn"]) < begun["drawn"]:
                raise _other_data(begun["drawn"])
            if number < len(self._passes) and self._draw() is not _END:
                raise _other_data(begun["drawn"])
        if epoch is not None and sampler is not None:
            sampler.epoch = epoch
        if self.sampler is not None and dealt is not None:
            self.sampler.processed_num = dealt
        _restore(self._generators, state["generators"])
        self._stream.restore(state["stream"])

    def _look_at(self, loader: Any) -> None:
        sampler = _sampler(loader)
        self.sampler = sampler if isinstance(sampler, ElasticSampler) else None
        self._batch_size = _batch_size(loader) if self.sampler is not None else 0
        parts = ("dataset", "sampler", "batch_sampler", "generator", "collate_fn")
        self._generators = generators_in(*(getattr(loader, part, None) for part in parts))

    def _has_other_ranks(self, begun: dict[str, Any]) -> bool:
        return self.sampler is not None and begun["ranks"] != list(self.sampler.present_ranks())

    def _begin_pass(self, loader: Any, begun: dict[str, Any]) -> None:
        self._stream = Stream(begun["seed"])
        with self._stream.drawing():
            self._iterator = iter(loader)

    def _draw(self) -> Any:
        with self._stream.drawing():
            return next(self._iterator, _END)

    def _repeat(self, loader: Any, batches: int) -> int:
        """Draws so many batches, or all that are left; returns how many."""
        indices = getattr(self._iterator, "_next_index", None) if _draws_indices(loader) else None
        with self._stream.drawing():
            for number in range(batches):
                try:
                    next(self._iterator) if indices is None else indices()
                except StopIteration:
                    return number
        return batches


def _sampler(loader: Any) -> Any:
    """Returns what draws a loader's indices, below what makes batches of them."""
    if isinstance(getattr(loader, "dataset", None), torch_data.IterableDataset):
        return None
    found = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    return getattr(loader, "sampler", None) if found is None else found


def _batch_size(loader: Any) -> int:
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    if size is None:
        raise HvdFtError(
            "the loader of an ElasticSampler has no batch_size, so its samples cannot be counted: "
            "make it as DataLoader(dataset, batch_size=…, sampler=sampler)"
        )
    return int(size)


def _keeps_workers(loader: Any) -> bool:
    return bool(getattr(loader, "persistent_workers", False))


def _draws_indices(loader: Any) -> bool:
    """Returns whether drawing indices leaves everything as drawing batches does."""
    return (
        type(loader) is torch_data.DataLoader
        and loader.num_workers == 0
        and not isinstance(loader.dataset, torch_data.IterableDataset)
        and type(loader.batch_sampler) in (torch_data.BatchSampler, type(None))
        and type(_sampler(loader)) in _PLAIN_SAMPLERS
    )


def _restore(generators: list[Any], states: list[Any]) -> None:
    if len(generators) != len(states):
        raise HvdFtError(
            f"the data has {len(generators)} random generators, but it had {len(states)} in the "
            "snapshot: the restarted script must make the same on every start"
        )
    for generator, state in zip(generators, states, strict=True):
        set_generator_state(generator, state)


def _other_data(batches: int) -> HvdFtError:
    return HvdFtError(
        f"the restarted script's data does not end where it did ({batches} batches were drawn "
        "from it): it must give the same batches on every start"
    )
