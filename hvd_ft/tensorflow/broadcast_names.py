"""Names the variables of a broadcast by their position in the list.

Horovod uses the variables' own names. But TensorFlow runs one traced graph for all lists of the
same types and shapes, with the names of the first such list in this process. In a restarted process
the first list is a different one, because the process skips finished trainings with their
broadcasts; and collectives with different names are different collectives.
"""

from typing import Any

import horovod.tensorflow.functions
import tensorflow as tf

_make_stock = horovod.tensorflow.functions._make_broadcast_group_fn


def name_broadcasts_by_place() -> None:
    """Replaces Horovod's broadcast of variables in eager mode."""
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
