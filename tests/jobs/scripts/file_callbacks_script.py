"""Trains with callbacks that write files into the directory that the argument names."""

import os
import sys

import numpy as np
import tensorflow as tf

import hvd_ft.tensorflow.keras as hvd

hvd.init()
tf.keras.utils.set_random_seed(3)
folder = os.path.join(sys.argv[1], str(hvd.rank()))
os.makedirs(folder, exist_ok=True)
X = np.random.default_rng(1).standard_normal((24, 3)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)
callbacks = tf.keras.callbacks
model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,)), tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.05)), "mse")
table = callbacks.CSVLogger(f"{folder}/table.csv")
for epochs in (3, 4):
    fellows = [
        callbacks.TensorBoard(f"{folder}/board", update_freq=2),
        hvd.callbacks.FaultTolerance(snapshot_steps=4),
        table,
        callbacks.CSVLogger(f"{folder}/all.csv", append=epochs == 4),
        callbacks.ModelCheckpoint(
            folder + "/best-{epoch}.h5", "loss", save_best_only=True, save_weights_only=True
        ),
    ]
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    model.fit(data, epochs=epochs, validation_data=data, verbose=0, callbacks=fellows)
sys.stdout.write(f"END {hvd.rank()} {hvd.incarnation()}\n")
