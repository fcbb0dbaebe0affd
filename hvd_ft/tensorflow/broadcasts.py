"""Broadcasts of variables, under names that a restarted process gives them too, and of bytes.

Horovod names a variable's broadcast by the variable. But TensorFlow runs one traced graph for all
lists of the same types and shapes, with the names of the first such list in this process. In a
restarted process that is another list, as it passes over finished trainings without their
broadcasts; and collectives with other names are different collectives. So a broadcast is named by
its position in the list.
"""

from typing import Any

import horovod.tensorflow as hvd
import horovod.tensorflow.functions
import numpy as np
import tensorflow as tf

from hvd_ft.tensorflow.keras_api import plain_all

_make_stock = horovod.tensorflow.functions._make_broadcast_group_fn


def name_broadcasts_by_place() -> None:
    """Replaces Horovod's broadcast of variables in eager mode."""
    horovod.tensorflow.functions._make_broadcast_group_fn = lambda: (
        _broadcast_plain if tf.executing_eagerly() else _make_stock()
    )


def _broadcast_all(variables: list[tf.Variable], root_rank: int, process_set: Any) -> None:
    for number, variable in enumerate(variables):
        name = f"HorovodBroadcast_variable_{number}"
        value = horovod.tensorflow.functions.broadcast(
            variable, root_rank, name=name, process_set=process_set
        )
        variable.assign(value)


_broadcast_group = tf.function(_broadcast_all, autograph=False)


def _broadcast_plain(variables: list[Any], root_rank: int, process_set: Any) -> None:
    _broadcast_group(plain_all(variables), root_rank, process_set)


def broadcast_bytes(data: bytes, size_name: str, name: str) -> bytes:
    """Returns rank 0's bytes, on all ranks.

    Args:
        data: the bytes to send, on rank 0; ignored on other ranks.
        size_name: name of the broadcast of their number.
        name: name of the broadcast of the bytes.
    """
    size = hvd.broadcast(tf.constant([len(data)], tf.int64), 0, name=size_name)
    mine = hvd.rank() == 0
    own = np.frombuffer(data, np.uint8) if mine else np.zeros(int(size[0]), np.uint8)
    return bytes(hvd.broadcast(tf.constant(own), 0, name=name).numpy().tobytes())
