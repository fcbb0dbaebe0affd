"""Names the variables of a broadcast by their place in the list.

Horovod names them as the variables are called. But TensorFlow runs one traced graph for all lists
of the same types and shapes, so the names are those of the first such list in this process: of
another one in a restarted process, which passes the trainings that had ended without their
broadcasts. Collectives of another name are other collectives.
"""

from typing import Any

import horovod.tensorflow.functions
import tensorflow as tf

_make_stock = horovod.tensorflow.functions._make_broadcast_group_fn


def name_broadcasts_by_place() -> None:
    """Puts our way of broadcasting variables in the place of Horovod's, for eager mode."""
    horovod.tensorflow.functions._make_broadcast_group_fn = lambda: (
        _broadcast_group if tf.executing_eagerly() else _make_stock()
    )


def _broadcast_all(variables: list[tf.Variable], root_rank: int, process_set: Any) -> None:
    for number, variable in enumerate(variables):
        name = f"HorovodBroadcast_variable_{number}"
        value = horovod.tensorflow.functions.broadcast(
            variable, root_rank, name=name, process_set=process_set
        )
        variable.assign(value)


_broadcast_group = tf.function(_broadcast_all, autograph=False)
