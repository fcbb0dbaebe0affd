"""The parts of the training process that do not need TensorFlow."""
