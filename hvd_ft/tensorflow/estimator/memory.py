"""Estimators whose variables live in memory, for who does not patch tensorflow_estimator.

TensorFlow has a file system in memory, `ram://`: a model directory there gives an Estimator all it
does with checkpoints, and nothing of it reaches a disk. Its event files would grow without end, so
for these directories none are written.
"""

import itertools
from functools import cache
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from tensorflow.python.summary.writer.writer_cache import FileWriterCache

_MEMORY = "ram://estimator/"  # as the patched Estimator's
_numbers = itertools.count()


def run_config(config: Any = None) -> Any:
    """Makes a RunConfig with which rank 0 alone writes, and only if it is given a directory.

    Args:
        config: a `tf.estimator.RunConfig`; the default one if left out.

    Returns:
        `config` on rank 0 if it has a `model_dir`, else one whose checkpoints stay in memory.

    Raises:
        ValueError: Horovod is not initialised.
    """
    config = tf.estimator.RunConfig() if config is None else config
    return config if config.model_dir and hvd.rank() == 0 else in_memory(config)


def in_memory(config: Any) -> Any:
    """Returns a RunConfig like this one, with a model directory of its own in memory."""
    _mute_summaries()
    config = config.replace(
        model_dir=f"{_MEMORY}hvd_ft-{next(_numbers)}",
        keep_checkpoint_max=1,
        checkpoint_save_graph_def=False,
        save_summary_steps=0,
    )
    if config.save_checkpoints_secs or config.save_checkpoints_steps:
        return config
    return config.replace(save_checkpoints_secs=600)  # else the next call finds no variables


def is_in_memory(directory: str) -> bool:
    """Tells whether a model directory is in memory, the patched Estimator's too."""
    return directory.startswith(_MEMORY)


class _NoWriter:
    """A summary writer that writes nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


@cache
def _mute_summaries() -> None:
    stock = FileWriterCache.get
    nothing = _NoWriter()

    def get(logdir: str) -> Any:
        return nothing if is_in_memory(str(logdir)) else stock(logdir)

    FileWriterCache.get = staticmethod(get)
