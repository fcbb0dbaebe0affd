"""Ranks with unequal numbers of batches train and join; prints the weights and who joined last."""

import sys

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow as hvd

BATCHES = ((2, 5, 3), (4, 1, 6), (3, 3, 0))  # by epoch and rank; the last two: a tie, none at all

hvd.init()
rank = hvd.rank()
weights = np.arange(60_000, dtype="float32")
lasts = []
for epoch, batches in enumerate(BATCHES):
    for batch in range(batches[rank]):
        gradient = tf.constant((3 * weights + rank + batch) % 17)
        total = hvd.allreduce(gradient, op=hvd.Sum, name=f"g{batch % 2}")
        most = hvd.grouped_allreduce([gradient[:9], gradient[9:19]], op=hvd.Max, name="most")
        weights = total.numpy() + most[0].numpy()[0] - most[1].numpy()[-1]
    if epoch == 1 and rank == 2:  # the others have joined
        try:
            hvd.allgather(tf.ones(2), name="refused")
        except tf.errors.OpError as error:
            assert "Allgather is not supported with Join" in str(error), error
    last = int(hvd.join())
    lasts.append(last)
    weights = hvd.broadcast(weights, last, name="w").numpy()  # who joined last has trained on

sys.stdout.write(f"rank {rank}: {lasts[:2]} {weights[:5]} {weights.sum()}\n")
hvd.allreduce(tf.ones(1), name="end")  # who ends first shuts Horovod down for all
