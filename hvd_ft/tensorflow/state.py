"""`State`: the state of a user's own training loop, in the manner of `hvd.elastic`."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.system.json_text import read_json
from hvd_ft.system.say import say
from hvd_ft.tensorflow import made_variables
from hvd_ft.tensorflow.broadcasts import broadcast_bytes
from hvd_ft.tensorflow.data import after_passes
from hvd_ft.tensorflow.late_variables import LateVariables
from hvd_ft.tensorflow.other_variables import KeptOthers, OtherVariables
from hvd_ft.tensorflow.rng import restore_rng_state, rng_state
from hvd_ft.tensorflow.sampled_data import SampledData, sampled
from hvd_ft.tensorflow.variables import (
    assign,
    build_optimizer,
    byte_count,
    counts_in_python,
    different_shape,
    kinds,
    local_sums,
    model_variables,
    optimizer_variables,
    own_variables,
    read,
    registered_local,
    restore,
    slots_of,
    unique,
)
from hvd_ft.worker.divergence_rule import Kind
from hvd_ft.worker.loop_state import LoopState, has_state
from hvd_ft.worker.resized import of_state
from hvd_ft.worker.snapshot_format import decode, encode
from hvd_ft.worker.snapshot_interval import DEFAULT_OVERHEAD
from hvd_ft.worker.training_loop import Contents, TrainingLoop


class State(LoopState):
    """Everything a training loop changes from step to step.

    Values are attributes: `State(lr=0.1).lr`. `epoch` and `batch` always exist, and are 0 at first.
    Without an agent a State only broadcasts in `sync`.

    Args:
        model: Keras model, built.
        optimizer: the model's Keras optimizer; by default the one the model was compiled with.
        variables: further tf.Variables.
        local_variables: variables of the model, or among `variables`, that belong to one rank, such
            as its part of an embedding: `sync` leaves them and their slots as they are. Variables
            given to `register_local_var` of Horovod's optimizer need not be named.
        snapshot_steps: commits from one snapshot to the next, at least 1; None: chosen by
            `snapshot_overhead`.
        snapshot_overhead: share of the training time that snapshots may take.
        values: anything made of None, bool, int, float, str, numpy arrays, lists, tuples and dicts;
            may be set at any time. Also objects with `state_dict` and `load_state_dict`, such as an
            ElasticSampler; the result of `state_dict` is kept for them.

    Raises:
        HvdFtError: the model is not built, or an argument is out of range or has a name that State
            itself uses.
    """

    def __init__(
        self,
        model: tf.keras.Model | None = None,
        optimizer: Any = None,
        variables: Sequence[tf.Variable] = (),
        snapshot_steps: int | None = None,
        snapshot_overhead: float = DEFAULT_OVERHEAD,
        *,
        local_variables: Sequence[tf.Variable] = (),
        **values: Any,
    ) -> None:
        if model is not None and not model.built:
            raise HvdFtError(
                f"the model {model.name} is not built, so State cannot keep its variables: call "
                "model.build(input_shape) before"
            )
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        self._variables = unique(variables, local_variables)
        self._local = list(local_variables)
        self._passes: list[int] = []  # number of batches of each complete pass over the data
        self._rest: dict[str, Any] | None = None  # to be restored where the loop is entered
        self._others: OtherVariables | None = None
        self._late: LateVariables | None = None  # in the process that tells of them
        self._kept: list[tf.Variable] = []  # in snapshots; found once a loop: the search is slow
        super().__init__(snapshot_steps, snapshot_overhead, values)

    def sync(self) -> None:
        """Begins the training loop: all ranks take over rank 0's variables and values.

        A restarted process then restores its snapshot. If the number of ranks has changed since the
        snapshot was taken, the functions of `register_reset_callbacks` are called.

        Raises:
            HvdFtError: a value cannot be kept, or the snapshot does not fit the script.
        """
        if self.optimizer is not None:
            # Otherwise slots would be created in the first step, too late to restore them.
            build_optimizer(self.optimizer, self._trainable())
        _, values = decode(
            memoryview(_broadcast(self._shared(), b"".join(encode({}, self._get()))))
        )
        self._set(values)
        self._commits = 0
        worker = native.worker()
        if worker is None:
            return
        if worker.rank == 0 and worker.incarnation == 0 and counts_in_python(self.optimizer):
            say(
                "the optimizer Nadam counts in Python, which a restarted loop cannot make "
                "up for, so its steps will differ after a restart; use "
                "tf.keras.optimizers.legacy.Nadam, or Model.fit"
            )
        self._kept = self._all()
        self._begin_loop(worker)

    def batches(self, dataset: tf.data.Dataset) -> Iterator[Any]:
        """Yields the batches of one pass over a dataset, from this state's position.

        In the loop's body, `batch` is the number of the batch. A commit follows each batch; at the
        end of the pass `epoch` grows by one and `batch` is 0. Use each State with one dataset only,
        and each dataset with one State, and do not leave the loop early (shorten the dataset with
        `take`).

        If the data comes from an ElasticSampler, which has to be one of this State's values, a pass
        is the rest of the sampler's epoch, and the sampler's next epoch begins at its end.

        Args:
            dataset: yields the same batches in every run of the script, which requires seeds.

        Raises:
            HvdFtError: the sampler of this data is not in this State, or cannot count its batches.
        """
        self._by_batches = True
        data = sampled(dataset)
        if data is not None:
            yield from self._sampled_batches(data)
            return
        iterator = iter(dataset)
        if self._resumed:
            self._resumed = False
            before = rng_state()
            iterator = after_passes(dataset, iterator, [*self._passes, self.batch])
            self._rest = self._rest or {"rng": before}
            self._restore_rest()
        yield from self._committed(iterator)
        self._passes.append(self.batch)
        self.epoch, self.batch = self.epoch + 1, 0

    def _sampled_batches(self, data: SampledData) -> Iterator[Any]:
        if all(getattr(self, name) is not data.sampler for name in self._names):
            raise HvdFtError(
                "the data's ElasticSampler is not in this State, so its position would not be "
                "kept: give it as a value, State(sampler=sampler)"
            )
        self._sampled = True
        if self._resumed:
            self._resumed = False
            self._restore_rest()
        yield from self._committed(data.batches())
        data.end_epoch()
        self.epoch, self.batch = self.epoch + 1, 0

    def _committed(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yields the batches of a pass, and commits after each."""
        if self._late is not None:
            self._late.begin_pass()
        for batch in batches:
            yield batch
            self.batch += 1
            self.commit()
        if self._late is not None:
            self._late.end_pass()

    def _begun(self, loop: TrainingLoop) -> None:
        self._others = OtherVariables(self._kept)
        self._late = LateVariables() if loop.tells else None

    def _read(self) -> dict[str, np.ndarray]:
        return read(self._kept)

    def _assign(self, name: str, array: np.ndarray) -> None:
        assign(self._kept, name, array)

    def _bytes(self) -> tuple[int, int]:
        return byte_count(self._kept), byte_count(self._trainable())

    def _contents(self) -> Contents:
        assert self._others is not None
        values = {"values": self._get(), "passes": self._passes}
        drawn = {"by_batches": self._by_batches, "sampled": self._sampled}
        others = self._others.state(self._kept, common=())[1]
        if self._late is not None:
            self._late.look(others["contents"], others["averages"])
        rest = {"rng": rng_state(), "others": others}
        if self._rest is not None:  # not entered yet
            rest |= {name: self._rest[name] for name in rest if self._rest.get(name)}
        return read(self._kept), {**values, **drawn, **rest}

    def _restore(self, loop: TrainingLoop) -> None:
        arrays, values = loop.snapshot()
        if loop.resized is not None:
            values = of_state(values, loop.resized)
        restore(self._kept, arrays)
        self._set(values["values"])
        self._commits, self._passes = values["step"], values["passes"]
        self._resumed, self._rest = True, values
        # Up to `batches` the script draws the same numbers as before, for example for its data, and
        # begins an epoch's metrics.
        if not values["by_batches"]:
            self._restore_rest()
        loop.jump()

    def _restore_rest(self, *, skipped: bool = False) -> None:
        rest, self._rest = self._rest, None
        if rest is not None and self._others is not None:
            restore_rng_state(rest["rng"])
            drawn = set() if skipped else made_variables.made.of_data()
            self._others.restore(KeptOthers({}, rest.get("others", {})), drawn)

    def _get(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self._names}
        return {
            name: value.state_dict() if has_state(value) else value
            for name, value in values.items()
        }

    def _set(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if has_state(own := getattr(self, name)):
                own.load_state_dict(value)
            else:
                setattr(self, name, value)

    def _trainable(self) -> list[tf.Variable]:
        own = [variable for variable in self._variables if variable.trainable]
        return [*(self.model.trainable_variables if self.model is not None else []), *own]

    def _shared(self) -> list[tf.Variable]:
        """Variables that are the same on all ranks; random generators are not."""
        own = {id(variable) for variable in self._own()}
        return [variable for variable in self._named() if id(variable) not in own]

    def _named(self) -> list[tf.Variable]:
        model = self.model.weights if self.model is not None else []
        optimizer = optimizer_variables(self.optimizer) if self.optimizer is not None else []
        return unique(model, optimizer, self._variables)

    def _own(self) -> list[tf.Variable]:
        """Variables that the script has declared as local to a rank, with their slots."""
        local = unique(self._local, registered_local(self.optimizer))
        return unique(local, slots_of(self.optimizer, local))

    def _kinds(self) -> dict[str, Kind]:
        weights = self.model.weights if self.model is not None else []
        own = own_variables(self.model) if self.model is not None else []
        return kinds(self._kept, weights, [*own, *local_sums(self.optimizer), *self._own()])

    def _all(self) -> list[tf.Variable]:
        model = model_variables(self.model) if self.model is not None else []
        return unique(self._named(), model, local_sums(self.optimizer))


def _broadcast(variables: list[tf.Variable], values: bytes) -> bytes:
    """Sets the variables to rank 0's contents; returns rank 0's bytes.

    Raises:
        HvdFtError: rank 0 has other variables.
    """
    shapes = [[variable.name, str(variable.shape)] for variable in variables]
    text = json.dumps(shapes).encode()
    of_root = read_json(broadcast_bytes(text, "hvd_ft.State.shapes_size", "hvd_ft.State.shapes"))
    if different := different_shape(shapes, of_root):
        line = (
            f"State.sync cannot take over rank 0's variables on rank {hvd.rank()}: {different}; "
            "what is a rank's own has to be among State's local_variables"
        )
        if (worker := native.worker()) is not None:
            worker.fatal(line)
        raise HvdFtError(line)
    if variables:
        hvd.broadcast_variables(variables, root_rank=0)
    return broadcast_bytes(values, "hvd_ft.State.size", "hvd_ft.State.values")
