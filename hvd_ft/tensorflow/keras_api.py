"""Which Keras `tf.keras` is: Keras 2, of TensorFlow 2.15 or as tf_keras, or Keras 3.

TensorFlow from 2.16 on has Keras 3; with TF_USE_LEGACY_KERAS=1 in the environment `tf.keras` is
tf_keras, which is Keras 2 still. Nothing else in hvd_ft asks which one it is by its version, or
imports Keras by a name of its own.
"""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow import keras

_PACKAGE = keras.Model.__module__.partition(".")[0]  # keras or tf_keras
KERAS_3 = sys.modules[_PACKAGE].__version__.startswith("3.")
FOLDER = Path(str(sys.modules[_PACKAGE].__file__)).parent


def source(name: str) -> Any:
    """Returns a module of Keras's own that has no public name, such as `backend`."""
    return importlib.import_module(f"{_PACKAGE}.src.{name}")


# Objects among a layer's attributes that hold the state of a random generator.
RandomGenerator = keras.random.SeedGenerator if KERAS_3 else source("backend").RandomGenerator
# What has variables and is no variable itself.
MODULES: tuple[type, ...] = (tf.Module,)
if KERAS_3:
    MODULES += (keras.Layer, keras.metrics.Metric, keras.optimizers.Optimizer)


def plain(variable: Any) -> Any:
    """Returns the tf.Variable inside of a variable of Keras 3; anything else as it is."""
    return variable.value if KERAS_3 and isinstance(variable, keras.Variable) else variable


def plain_all(variables: Iterable[Any]) -> list[Any]:
    """Returns each as `plain` does."""
    return [plain(variable) for variable in variables]


def is_legacy(optimizer: Any) -> bool:
    """Returns whether it is one of `tf.keras.optimizers.legacy`, which Keras 3 does not have."""
    return not KERAS_3 and isinstance(optimizer, keras.optimizers.legacy.Optimizer)


def layers(model: Any) -> list[Any]:
    """Returns a model, and all layers in it."""
    return list(model._flatten_layers()) if KERAS_3 else [model, *model.submodules]


def seeds() -> Any:
    """Returns the generator of seeds that `keras.utils.set_random_seed` makes; None without one.

    Keras 3 draws seeds with Python's own.
    """
    return None if KERAS_3 else getattr(source("backend")._SEED_GENERATOR, "generator", None)


def refer_to_variables() -> None:
    """Lets Horovod refer to variables of Keras 3 as it does to tf.Variables."""
    keras.Variable.ref = lambda variable: plain(variable).ref()


def is_a_variable(item: Any) -> bool:
    """Returns whether it is a variable, Keras's or TensorFlow's."""
    return isinstance(plain(item), tf.Variable)
