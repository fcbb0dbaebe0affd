"""The variables that make up training: found in a model and its optimizer, read and restored."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hvd_ft.errors import HvdFtError
from hvd_ft.tensorflow import keras_api
from hvd_ft.tensorflow.keras_api import KERAS_3, RandomGenerator, plain
from hvd_ft.worker.divergence_rule import Kind


def model_variables(model: tf.keras.Model) -> list[tf.Variable]:
    """Returns all variables of a Keras model, including its optimizer and its random generators."""
    return unique(
        [*model.variables, *_tracked(model)],
        optimizer_variables(optimizer) if (optimizer := _optimizer(model)) else [],
        generator_variables(model),
        [] if KERAS_3 else [model._train_counter],
    )


def generator_variables(model: tf.keras.Model) -> list[tf.Variable]:
    """Returns the states of the random generators that a Keras model has."""
    generators = [
        value
        for layer in keras_api.layers(model)
        for value in vars(layer).values()
        if isinstance(value, RandomGenerator | tf.random.Generator)
    ]
    return unique(*map(_states, generators))


def _states(generator: Any) -> list[Any]:
    own = isinstance(generator, tf.random.Generator) or not KERAS_3
    return _tracked(generator) if own else [generator.state]


def _optimizer(model: tf.keras.Model) -> Any:
    return getattr(model, "optimizer", None)  # a model of Keras 3 has none before `compile`


def optimizer_variables(optimizer: Any) -> list[tf.Variable]:
    """Returns the variables of an optimizer: Keras's, a legacy one, wrapped by Horovod or not."""
    variables = optimizer.variables
    # `variables` omits the learning rate, legacy hyperparameters and the loss scale.
    return unique(variables() if callable(variables) else variables, _tracked(optimizer))


def fit_variables(model: tf.keras.Model) -> list[tf.Variable]:
    """Returns all variables of a model that is being fitted.

    Besides the model's own these are the compiled metrics' variables and Horovod's local sums
    (`backward_passes_per_step`).
    """
    return unique(model_variables(model), _metric_variables(model), local_sums(model.optimizer))


def own_variables(model: tf.keras.Model) -> list[tf.Variable]:
    """Returns those of a model's `fit_variables` that differ from rank to rank.

    Batch statistics are not among them, because a layer does not tell which of its variables they
    are.
    """
    sums = local_sums(optimizer) if (optimizer := _optimizer(model)) else []
    return unique(generator_variables(model), _metric_variables(model), sums)


def _metric_variables(model: tf.keras.Model) -> list[tf.Variable]:
    return [variable for metric in model.metrics for variable in metric.variables]


def local_sums(optimizer: Any) -> list[tf.Variable]:
    """Returns the gradients that Horovod's optimizer has summed locally since an allreduce."""
    helper = getattr(optimizer, "_agg_helper", None)
    return [] if helper is None else [helper.counter, *helper.locally_aggregated_grads.values()]


def registered_local(optimizer: Any) -> list[tf.Variable]:
    """Returns the variables given to `register_local_var` of Horovod's optimizer."""
    registers = (optimizer, getattr(optimizer, "_agg_helper", None))
    references = [ref for each in registers for ref in getattr(each, "_local_vars", ())]
    return unique(reference.deref() for reference in references)


def slots_of(optimizer: Any, variables: Iterable[tf.Variable]) -> list[tf.Variable]:
    """Returns the slots that an optimizer has for these variables."""
    own = inner(optimizer)
    if keras_api.is_legacy(own):
        names = own.get_slot_names()
        key_of = keras_api.source("optimizers.legacy.optimizer_v2")._var_key
        of_all = [own._slots.get(key, {}) for key in map(key_of, variables)]
        return [slots[name] for slots in of_all for name in names if name in slots]
    numbers = getattr(own, "_trainable_variables_indices" if KERAS_3 else "_index_dict", None)
    if not numbers:
        return []
    lists = [
        value
        for name, value in vars(own).items()
        if name not in ("_variables", "_trainable_variables")
        and isinstance(value, list)
        and len(value) == len(numbers)
    ]
    places = [numbers.get(own._var_key(variable)) for variable in variables]
    found = [values[place] for values in lists for place in places if place is not None]
    return [plain(value) for value in found if keras_api.is_a_variable(value)]


def different_shape(own: list[list[Any]], of_root: list[list[Any]]) -> str:
    """Compares variables that are to be broadcast, each a name and a shape; "" if they are equal.

    Args:
        own: of this rank.
        of_root: of rank 0.
    """
    if len(own) != len(of_root):
        return f"this rank has {len(own)} variables, rank 0 has {len(of_root)}"
    for (name, shape), (_, root_shape) in zip(own, of_root, strict=True):
        if shape != root_shape:
            return f"{name} has the shape {shape} on this rank, and {root_shape} on rank 0"
    return ""


def build_optimizer(optimizer: Any, variables: list[tf.Variable]) -> None:
    """Creates the slots and local sums of a Keras optimizer, as its first step would.

    Args:
        optimizer: of Keras, a legacy one, wrapped by Horovod or not.
        variables: all variables that it will train, in this order.
    """
    if keras_api.is_legacy(optimizer):
        optimizer._create_all_weights(variables)
    elif not (KERAS_3 and optimizer.built):
        optimizer.build(variables)
    helper = getattr(optimizer, "_agg_helper", None)
    if helper is not None:
        for number, variable in enumerate(variables):
            local_sum = tf.Variable(tf.zeros_like(plain(variable)), trainable=False)
            helper.locally_aggregated_grads.setdefault(number, local_sum)


def inner(optimizer: Any) -> Any:
    """Returns the optimizer inside a loss-scaling one."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def counts_in_python(optimizer: Any) -> bool:
    """Returns whether an optimizer has a Python number that grows whenever a step is traced.

    Its updates depend on that number, so its steps have to be traced as often as before.
    """
    return not KERAS_3 and isinstance(inner(optimizer), tf.keras.optimizers.Nadam)


def make_step_variables(model: tf.keras.Model, iterator: Any) -> None:
    """Creates the variables that tracing Keras's own training step creates; runs nothing.

    TensorFlow traces a step that creates variables twice. Tracing only the parts that create them
    (slots, and the metrics, which need the loss) takes a fraction of that. It is only a short cut:
    if it fails, the step itself works, or reports the error.
    """
    if (
        type(model).train_step is not tf.keras.Model.train_step
        or not isinstance(model.optimizer, tf.keras.optimizers.Optimizer)  # a legacy one
        or counts_in_python(model.optimizer)
        or getattr(model.optimizer, "_agg_helper", None) is not None  # slots made in a tf.cond
        or not model.built
        or not model.trainable_variables
    ):
        return
    with contextlib.suppress(Exception):
        _make_step_variables(model, iterator)


def _make_step_variables(model: tf.keras.Model, iterator: Any) -> None:
    with tf.name_scope(inner(model.optimizer).name or "optimizer"):  # as in the step
        model.optimizer.build(model.trainable_variables)

    def measure(iterator: Any) -> Any:
        x, y, weight = tf.keras.utils.unpack_x_y_sample_weight(next(iterator))
        y_pred = model(x, training=True)
        model.compute_loss(x, y, y_pred, weight)
        return model.compute_metrics(x, y, y_pred, weight)

    tf.function(measure, autograph=False).get_concrete_function(iterator)


def byte_count(variables: Iterable[tf.Variable]) -> int:
    """Returns the bytes of all variables' contents together."""
    every = map(plain, variables)
    return sum(variable.shape.num_elements() * variable.dtype.size for variable in every)


def read(variables: Iterable[tf.Variable]) -> dict[str, np.ndarray]:
    """Returns the variables' contents by number and name; on a CPU they are not copied."""
    return {
        f"{number}:{variable.name}": np.asarray(variable.read_value())
        for number, variable in enumerate(variables)
    }


def assign(variables: Sequence[tf.Variable], name: str, array: np.ndarray) -> None:
    """Sets the variable that has this name in what `read` returned."""
    variables[int(name.partition(":")[0])].assign(array)


def kinds(
    variables: Iterable[tf.Variable],
    weights: Iterable[tf.Variable],
    own: Iterable[tf.Variable],
) -> dict[str, Kind]:
    """Returns the kind of each variable (divergence_rule.py), by the names that `read` gives.

    Args:
        variables: as for `read`.
        weights: the model's variables; those that it does not train, such as batch statistics, do
            not count.
        own: variables that differ from rank to rank.
    """
    sorts = {id(variable): Kind.WEIGHT for variable in map(plain, weights) if variable.trainable}
    sorts |= {id(variable): Kind.OWN for variable in own}
    return {
        f"{number}:{variable.name}": sorts[id(variable)]
        for number, variable in enumerate(variables)
        if id(variable) in sorts
    }


def restore(variables: list[tf.Variable], arrays: Mapping[str, np.ndarray]) -> None:
    """Sets the variables to the contents that `read` returned.

    Raises:
        HvdFtError: the script has made other variables than before.
    """
    for variable, array in matched(variables, arrays):
        variable.assign(np.array(array))  # a copy: TensorFlow may keep the memory it is given


def matched(
    variables: list[tf.Variable], arrays: Mapping[str, np.ndarray]
) -> list[tuple[tf.Variable, np.ndarray]]:
    """Returns the variables, each with its array from a snapshot.

    Raises:
        HvdFtError: the script has made other variables than before.
    """
    if len(arrays) != len(variables):
        raise HvdFtError(
            f"the snapshot has {len(arrays)} variables, but the restarted script has made "
            f"{len(variables)}: it must make the same on every start"
        )
    for variable, (name, array) in zip(variables, arrays.items(), strict=True):
        if variable.shape != array.shape:
            raise HvdFtError(
                f"{name} has the shape {array.shape} in the snapshot, but the restarted script has "
                f"made it {tuple(variable.shape)}: it must make the same on every start"
            )
    return list(zip(variables, arrays.values(), strict=True))


def unique(*groups: Iterable[tf.Variable]) -> list[tf.Variable]:
    """Returns the variables of all groups in order, each once, as TensorFlow's own."""
    every = [plain(variable) for group in groups for variable in group]
    return list({id(variable): variable for variable in every}.values())


def _tracked(root: Any) -> list[tf.Variable]:
    found = tf.train.TrackableView(root).descendants()
    return [plain(item) for item in found if keras_api.is_a_variable(item)]
