"""A broadcast of bytes of any length."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


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
