"""Estimators whose variables live in memory, without a patched tensorflow_estimator.

TensorFlow has a file system in memory, `ram://`: with a model directory there an Estimator can do
everything that it does with checkpoints, and nothing reaches a disk. Event files would grow without
limit, so none are written to such directories. Functions that need files raise an error, as with
the patch.
"""

import itertools
import os
from functools import cache
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from tensorflow.python.summary.writer.writer_cache import FileWriterCache
from tensorflow_estimator.python.estimator import early_stopping, estimator, keras_lib

_MEMORY = "ram://hvd_ft/"
_PATCHED = "ram://estimator/"  # the patched Estimator's
_numbers = itertools.count()


def run_config(config: Any = None) -> Any:
    """Returns a RunConfig with which only rank 0 writes, and only if it is given a directory.

    Args:
        config: a `tf.estimator.RunConfig`; the default one if omitted.

    Returns:
        `config` on rank 0 if it has a `model_dir`, otherwise one whose checkpoints stay in memory.

    Raises:
        ValueError: Horovod is not initialised.
    """
    config = tf.estimator.RunConfig() if config is None else config
    return config if config.model_dir and hvd.rank() == 0 else in_memory(config)


def in_memory(config: Any) -> Any:
    """Returns a RunConfig like this one, with a model directory of its own in memory."""
    _prepare_tensorflow()
    config = config.replace(
        model_dir=f"{_MEMORY}{next(_numbers)}",
        keep_checkpoint_max=1,
        checkpoint_save_graph_def=False,
        save_summary_steps=0,
    )
    if config.save_checkpoints_secs or config.save_checkpoints_steps:
        return config
    return config.replace(save_checkpoints_secs=600)  # otherwise the next call finds no variables


def is_in_memory(directory: str) -> bool:
    """Returns whether a model directory is in memory, including the patched Estimator's."""
    return directory.startswith((_MEMORY, _PATCHED))


class _NoWriter:
    """A summary writer that writes nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


@cache
def _prepare_tensorflow() -> None:
    """Changes the same functions as the patch, at run time."""
    writer, read_metrics = FileWriterCache.get, early_stopping.read_eval_metrics
    export = estimator.Estimator._export_all_saved_models
    save_first = keras_lib._save_first_checkpoint
    nothing = _NoWriter()

    def get_writer(logdir: Any) -> Any:
        return nothing if is_in_memory(str(logdir)) else writer(logdir)

    def read_eval_metrics(eval_dir: Any) -> Any:
        if is_in_memory(eval_dir):
            raise ValueError(
                "Early stopping reads event files, and this Estimator writes none: give it a "
                "`model_dir` on every rank, and no `hvd.estimator.run_config`."
            )
        return read_metrics(eval_dir)

    def export_all(self: Any, export_dir_base: Any, *args: Any, **kwargs: Any) -> Any:
        # The other ranks' exports are discarded, like their checkpoints.
        if is_in_memory(tf.compat.as_str_any(export_dir_base)) and hvd.rank() == 0:
            raise ValueError(
                "This Estimator has no model directory, and an exporter of train_and_evaluate "
                "exports into it: give the Estimator a `model_dir`, or call `export_saved_model` "
                "with a directory."
            )
        return export(self, export_dir_base, *args, **kwargs)

    def save_first_checkpoint(*args: Any, **kwargs: Any) -> Any:
        # In memory, TensorFlow mistakes the path of a checkpoint for a directory.
        path = save_first(*args, **kwargs)
        return os.path.dirname(path) if is_in_memory(path) else path

    FileWriterCache.get = staticmethod(get_writer)
    early_stopping.read_eval_metrics = read_eval_metrics
    estimator.Estimator._export_all_saved_models = export_all
    keras_lib._save_first_checkpoint = save_first_checkpoint
