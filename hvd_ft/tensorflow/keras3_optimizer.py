"""Horovod's DistributedOptimizer for optimizers of Keras 3.

Horovod's own overrides what Keras 3 no longer calls. In Keras 3 every gradient goes through
`apply`, so an optimizer reduces there. It is of a class made from that of the given optimizer, with
its name and module, as Horovod does it, so that a saved model can be loaded without Horovod.

A LossScaleOptimizer takes one of two branches, by what it finds in its own gradients. It must find
the same on all ranks, so gradients are reduced before it looks, also where Keras puts it around a
distributed optimizer by itself.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import horovod._keras
import horovod.tensorflow as hvd
import tensorflow as tf
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from tensorflow import keras

from hvd_ft.errors import HvdFtError
from hvd_ft.tensorflow.keras_api import plain, plain_all


class Reduction:
    """Reduces the gradients of one optimizer; arguments are those of Horovod.

    Attributes:
        local_vars: references of the variables that belong to one rank.
        helper: sums gradients of `backward_passes_per_step` steps; None if that is 1.
    """

    def __init__(
        self,
        name: str,
        options: dict[str, Any],
        passes: int,
        average_passes: bool,
        scale_local: bool,
    ) -> None:
        self._reduce = hvd._make_allreduce_grads_fn(name, **options)
        self._process_set = options["process_set"]
        self._scale_local = scale_local
        self._done = False
        self.local_vars: set[Any] = set()
        self.helper: Any = None
        if passes > 1:
            self.helper = LocalGradientAggregationHelperEager(
                backward_passes_per_step=passes,
                allreduce_func=self._reduce,
                sparse_as_dense=options["sparse_as_dense"],
                average_aggregated_gradients=average_passes,
                process_set=self._process_set,
                scale_local_gradients=scale_local,
            )

    def register(self, variable: Any) -> None:
        """Registers a variable that belongs to one rank."""
        register = self.local_vars.add if self.helper is None else self._register_with_helper
        register(plain(variable).ref())

    def _register_with_helper(self, reference: Any) -> None:
        self.helper.register_local_var(reference.deref())

    def __call__(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients of all ranks together, unless something around has reduced them."""
        if self._done:
            return list(grads)
        owners = plain_all(variables)
        if self.helper is not None:
            summed: list[Any] = self.helper.compute_gradients(tuple(grads), tuple(owners))
            return summed
        local = [owner.ref() in self.local_vars for owner in owners]
        shared = [number for number, own in enumerate(local) if not own]
        reduced = self._reduce([grads[n] for n in shared], [owners[n] for n in shared])
        result = [self._scaled(grad) for grad in grads] if any(local) else list(grads)
        for number, grad in zip(shared, reduced, strict=True):
            result[number] = grad
        return result

    def _scaled(self, grad: Any) -> Any:
        if grad is None or not self._scale_local:
            return grad
        size = self._process_set.size()
        if isinstance(grad, tf.IndexedSlices):
            return tf.IndexedSlices(grad.values / size, grad.indices, grad.dense_shape)
        return grad / size

    @contextmanager
    def done(self) -> Iterator[None]:
        """Passes gradients on as they are: they have been reduced already."""
        self._done = True
        try:
            yield
        finally:
            self._done = False


class Distributed:
    """What a distributed optimizer has beside its own class."""

    _hvd_ft_reduction: Reduction

    @property
    def variables(self) -> Any:
        """The optimizer's variables; may be called, as Horovod's scripts do."""
        return horovod._keras.CallableList(super().variables)  # type: ignore[misc]

    @property
    def _local_vars(self) -> set[Any]:
        return self._hvd_ft_reduction.local_vars

    @property
    def _agg_helper(self) -> Any:
        return self._hvd_ft_reduction.helper

    def register_local_var(self, var: Any) -> None:
        """Registers a variable whose gradient is not reduced: each rank has its own."""
        self._hvd_ft_reduction.register(var)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Reduces gradients over the ranks, and applies them."""
        own: Any = self
        grads = list(grads)
        if trainable_variables is None:
            trainable_variables = own._trainable_variables
        variables = list(trainable_variables)
        if not own.built:
            with keras.name_scope(own.name, caller=own):
                own.build(variables)
        reduction = self._hvd_ft_reduction
        apply = super().apply  # type: ignore[misc]
        reduced = reduction(grads, variables)
        if reduction.helper is None:
            apply(reduced, variables)
            return

        def step() -> Any:
            apply(reduced, variables)
            return tf.constant(True)

        def count() -> Any:
            own._iterations.assign_add(1)
            return tf.constant(True)

        tf.cond(tf.equal(reduction.helper.counter, 0), step, count)


def create_distributed_optimizer(
    *,
    keras: Any,
    optimizer: Any,
    name: str | None,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    gradient_predivide_factor: float,
    op: Any,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: Any = hvd.global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns an optimizer that reduces gradients over the ranks; see Horovod's of this name.

    Raises:
        HvdFtError: the options do not go together.
    """
    kind: Any = type(optimizer)
    if issubclass(kind, Distributed):
        raise HvdFtError(f"the optimizer {optimizer.name} is distributed already: use it as it is")
    if isinstance(groups, list):
        raise HvdFtError(
            "DistributedOptimizer(groups=[...]) finds variables by names, which are not unique in "
            "Keras 3: give groups a number"
        )
    if backward_passes_per_step > 1 and hasattr(optimizer, "inner_optimizer"):
        raise HvdFtError(
            "DistributedOptimizer(backward_passes_per_step=...) cannot sum what a "
            "LossScaleOptimizer scales: give the inner optimizer gradient_accumulation_steps"
        )
    distributed = distributed_class(kind)
    made = distributed.from_config(optimizer.get_config())
    options = {
        "device_dense": device_dense,
        "device_sparse": device_sparse,
        "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "groups": groups,
        "process_set": process_set,
    }
    # An object's own __setattr__ would track what it is given.
    vars(made)["_hvd_ft_reduction"] = Reduction(
        name or f"Distributed{kind.__name__}",
        options,
        backward_passes_per_step,
        average_aggregated_gradients,
        scale_local_gradients,
    )
    return made


@functools.cache
def distributed_class(kind: Any) -> Any:
    """Returns the class of distributed optimizers that is made from an optimizer's class."""
    names = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (Distributed, kind), names)


@functools.cache
def use_for_keras_3() -> None:
    """Has Horovod make such optimizers, and loss scaling look at reduced gradients."""
    horovod._keras.create_distributed_optimizer = create_distributed_optimizer
    kind = keras.optimizers.LossScaleOptimizer
    apply = kind.apply

    @functools.wraps(apply)
    def reduced_first(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        inner = self.inner_optimizer
        if not isinstance(inner, Distributed):
            apply(self, grads, trainable_variables)
            return
        reduction = inner._hvd_ft_reduction
        if reduction.helper is not None:
            raise HvdFtError(
                "DistributedOptimizer(backward_passes_per_step=...) cannot sum what a "
                "LossScaleOptimizer scales: give the optimizer gradient_accumulation_steps"
            )
        variables = (
            self._trainable_variables if trainable_variables is None else trainable_variables
        )
        grads = reduction(list(grads), list(variables))
        with reduction.done():
            apply(self, grads, trainable_variables)

    kind.apply = reduced_first
