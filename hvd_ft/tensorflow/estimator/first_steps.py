"""With how many steps each `Estimator.train` of this process has begun.

In a job that goes on from a checkpoint rank 0's model directory has more than when the earlier job
began; so the trainings begin as that job's did.
"""

import horovod.tensorflow as hvd
import tensorflow as tf

from hvd_ft.worker.resumed import resumed

first_steps: list[int] = []  # as rank 0 found them


def first_step(found: int) -> int:
    """Returns the global step at which rank 0 begins; the same on all ranks. Collective.

    Args:
        found: in this rank's model directory.
    """
    checkpoint = resumed(hvd.rank(), hvd.size())
    earlier = checkpoint.latest_values().get("first_steps", []) if checkpoint else []
    own = earlier[len(first_steps)] if len(first_steps) < len(earlier) else found
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.constant([own], tf.int64)
        agreed = session.run(hvd.broadcast(step, 0, name="hvd_ft.Estimator.first_step"))
    first_steps.append(int(agreed[0]))
    return first_steps[-1]
