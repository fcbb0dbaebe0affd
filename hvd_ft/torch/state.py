"""`State`: the state of a user's own training loop, in the manner of `hvd.elastic`."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import horovod.torch as hvd
import numpy as np

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.system.say import say
from hvd_ft.torch import op_names, wrapped
from hvd_ft.torch.broadcasts import broadcast_arrays, broadcast_bytes
from hvd_ft.torch.data import DataPosition
from hvd_ft.torch.kept import KeptValues
from hvd_ft.torch.rng import restore_rng_state, rng_state
from hvd_ft.torch.tensors import Arrays, Copies
from hvd_ft.worker.divergence_rule import Kind
from hvd_ft.worker.loop_state import LoopState
from hvd_ft.worker.resized import of_state
from hvd_ft.worker.rosters import Contents
from hvd_ft.worker.snapshot_format import decode, encode
from hvd_ft.worker.snapshot_interval import DEFAULT_OVERHEAD
from hvd_ft.worker.training_loop import TrainingLoop


class State(LoopState):
    """Everything a training loop changes from step to step.

    Values are attributes: `State(lr=0.1).lr`. `epoch` and `batch` always exist, and are 0 at first.
    Without an agent a State only broadcasts in `sync`.

    Args:
        snapshot_steps: commits from one snapshot to the next, at least 1; None: chosen by
            `snapshot_overhead`.
        snapshot_overhead: share of the training time that snapshots may take.
        values: by any names, such as model, optimizer, scheduler, scaler and sampler. Modules are
            kept with all parameters and buffers, optimizers with all states and groups, whether
            Horovod wraps them or not; random generators of torch, NumPy and Python, each rank's
            own; and anything with `state_dict` and `load_state_dict`. Everything else must be made
            of None, numbers, texts, tensors, NumPy arrays, and lists, tuples, sets and dicts of
            these; it may be set at any time. Gradients are kept too.

    Raises:
        HvdFtError: an argument is out of range or has a name that State itself uses.
    """

    def __init__(
        self,
        *,
        snapshot_steps: int | None = None,
        snapshot_overhead: float = DEFAULT_OVERHEAD,
        **values: Any,
    ) -> None:
        self._data = DataPosition()
        self._copies = Copies()
        self._rest: dict[str, Any] | None = None  # to be restored where the loop is entered
        self._again: dict[str, np.ndarray] | None = None  # arrays to be restored there again
        self._read_arrays = Arrays()  # of the latest `_read`
        super().__init__(snapshot_steps, snapshot_overhead, values)

    def sync(self) -> None:
        """Begins the training loop: all ranks take over rank 0's values, but generators.

        A restarted process then restores its snapshot. If the number of ranks has changed since the
        snapshot was taken, the functions of `register_reset_callbacks` are called.

        Raises:
            HvdFtError: a value cannot be kept, or the snapshot does not fit the script.
        """
        arrays = Arrays(Copies())
        values = self._kept().pack(arrays)
        try:
            self._set(*_broadcast(arrays.arrays, values))
        except HvdFtError as error:
            self._refuse(error)
            raise
        self._commits = 0
        worker = native.worker()
        if worker is not None:
            self._begin_loop(worker)

    def batches(self, loader: Any) -> Iterator[Any]:
        """Yields the batches of one pass over a loader, from this state's position.

        In the loop's body, `batch` is the number of the batch. A commit follows each batch; at the
        end of the pass `epoch` grows by one and `batch` is 0. Use each State with one loader only,
        and each loader with one State.

        A process that is restarted right after a pass's last batch enters no body of that pass any
        more. So what the script uses behind the loop, such as a sum of losses, has to be one of
        this State's values.

        If the loader has an ElasticSampler, which has to be one of this State's values, a pass is
        the rest of the sampler's epoch, and the sampler's next epoch begins at its end.

        Args:
            loader: a DataLoader, or anything that can be iterated over; gives the same batches in
                every run of the script, which requires seeds.

        Raises:
            HvdFtError: the sampler of this data is not in this State, or the data ends elsewhere
                than before.
        """
        self._by_batches = True
        self._enter(loader)
        sampler = self._data.sampler
        self._sampled = sampler is not None
        if sampler is not None and all(getattr(self, name) is not sampler for name in self._names):
            raise HvdFtError(
                "the loader's ElasticSampler is not in this State, so its position would not be "
                "kept: give it as a value, State(sampler=sampler)"
            )
        for batch in self._data.batches(loader):
            yield batch
            self.batch += 1
            self.commit()
        if sampler is not None:
            sampler.set_epoch(sampler.epoch + 1)
        self.epoch, self.batch = self.epoch + 1, 0

    def _enter(self, loader: Any) -> None:
        """Begins a pass over the data, or continues in the one that an earlier process has begun.

        Up to here the script draws the same numbers as before, for example for its data.
        """
        resumed, self._resumed = self._resumed, False
        drawn = self._rest["rng"].get("data") if resumed and self._rest is not None else None
        if drawn:
            self._data.resume(loader, drawn)
        else:
            self._data.begin(loader)
            if resumed and self._data.sampler is None:
                self._data.skip(loader, self.batch)
        self._restore_rest()

    def _kept(self) -> KeptValues:
        return KeptValues({name: getattr(self, name) for name in self._names})

    def _set(self, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> None:
        for name, value in self._kept().restore(values, arrays).items():
            setattr(self, name, value)

    def _contents(self) -> Contents:
        arrays, kept = Arrays(self._copies), self._kept()
        values: dict[str, Any] = {
            "values": kept.pack(arrays),
            "gradients": kept.pack_gradients(arrays),
            "names": op_names.counts(),
            "wrapped": wrapped.states(),
            "by_batches": self._by_batches,
            "sampled": self._sampled,
            "rng": {"global": rng_state(), "given": kept.generators()},
        }
        if self._by_batches:
            values["rng"]["data"] = self._data.state()
        if self._rest is not None:  # not entered yet
            values["rng"] = self._rest["rng"]
        if self._loop is not None:
            self._loop.kinds = kept.kinds(arrays)
        return arrays.arrays, values

    def _restore(self, loop: TrainingLoop) -> None:
        found, values = loop.snapshot()
        arrays = {name: self._copies.keep(name, array) for name, array in found.items()}
        if loop.resized is not None:
            values = of_state(values, loop.resized)
            values["rng"] = {name: state for name, state in values["rng"].items() if name != "data"}
        self._restore_values(values, arrays)
        op_names.restore_counts(values["names"])
        self._commits = values["step"]
        self._by_batches, self._sampled = values["by_batches"], values["sampled"]
        self._resumed, self._rest, self._again = True, values, arrays
        if not self._by_batches:
            self._restore_rest()
        loop.jump()

    def _restore_rest(self, *, skipped: bool = False) -> None:
        rest, self._rest = self._rest, None
        again, self._again = self._again, None
        if rest is not None:
            if again is not None and self._by_batches:
                # The script has done here what it does before each pass, such as setting a sum to
                # 0; the earlier process did that when the pass began.
                self._restore_values(rest, again)
            restore_rng_state(rest["rng"].get("global", {}))
            wrapped.restore(rest["wrapped"])
            self._kept().restore_generators(rest["rng"].get("given", {}))

    def _restore_values(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self._set(arrays, values["values"])
        self._kept().restore_gradients(values["gradients"], arrays)

    def _reset(self) -> None:
        self._again = None  # what the callbacks change stays
        super()._reset()

    def _is_at_rest(self) -> bool:
        count = op_names.in_flight()
        if count:
            _say_in_flight(count)
        return count == 0

    def _kinds(self) -> Mapping[str, Kind]:
        return {}  # at each snapshot

    def _read(self) -> Mapping[str, np.ndarray]:
        self._read_arrays = Arrays()
        self._kept().pack(self._read_arrays)
        return self._read_arrays.arrays

    def _assign(self, name: str, array: np.ndarray) -> None:
        self._read_arrays.assign(name, array)

    def _bytes(self) -> tuple[int, int]:
        arrays, kept = Arrays(), self._kept()
        kept.pack(arrays)
        trained = [each for each in kept.all_parameters().values() if each.requires_grad]
        gradients = sum(each.numel() * each.element_size() for each in trained)
        return sum(array.nbytes for array in arrays.arrays.values()), gradients

    def _refuse(self, error: HvdFtError) -> None:
        """Ends the job: the other ranks would wait for this one."""
        worker = native.worker()
        if worker is not None:
            worker.fatal(
                f"State.sync cannot take over rank 0's values on rank {worker.rank}: {error}"
            )


def _broadcast(
    arrays: dict[str, np.ndarray], values: Mapping[str, Any]
) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
    """Returns rank 0's arrays and values, on all ranks."""
    shapes = {name: [array.dtype.name, list(array.shape)] for name, array in arrays.items()}
    text = b"".join(encode({}, {"values": dict(values), "arrays": shapes}))
    name = "hvd_ft.State"
    _, found = decode(memoryview(broadcast_bytes(text, f"{name}.size", f"{name}.values")))
    if hvd.rank() > 0:
        arrays = {key: np.empty(shape, dtype) for key, (dtype, shape) in found["arrays"].items()}
    broadcast_arrays(arrays, f"{name}.array")
    return arrays, found["values"]


@cache
def _say_in_flight(count: int) -> None:
    say(
        f"{count} collectives are not synchronised at the end of a step, so no snapshot is taken "
        "there: call hvd.synchronize() with their handles within the step"
    )
