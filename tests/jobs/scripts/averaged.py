"""A model that averages its weights in an object which Keras does not track."""

from typing import Any

import numpy as np
import tensorflow as tf


class Averaged(tf.keras.Sequential):
    """Averages after each step, in variables that its first step makes."""

    def __init__(self, layers: list[Any]) -> None:
        super().__init__(layers)
        self.average = tf.train.ExponentialMovingAverage(0.9)

    def train_step(self, data: Any) -> Any:
        """A step of Keras's, and the averages of what it has made."""
        told = super().train_step(data)
        self.average.apply(self.trainable_variables)
        return told

    def averages(self) -> list[np.ndarray]:
        """What they are by now."""
        return [self.average.average(weight).numpy() for weight in self.trainable_variables]
