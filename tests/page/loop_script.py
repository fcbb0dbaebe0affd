"""A loop that trains until the job is ended."""

import tensorflow as tf

import hvd_ft.tensorflow as hvd

hvd.init()
model = tf.keras.Sequential([tf.keras.layers.Dense(4, input_shape=(8,))])
optimizer = tf.keras.optimizers.SGD(0.01)
state = hvd.State(model=model, optimizer=optimizer)
inputs = tf.random.stateless_normal((64, 8), (1, hvd.rank()))
state.sync()
while True:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(inputs) ** 2)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    state.batch += 1
    state.commit()
