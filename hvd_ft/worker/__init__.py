"""What runs in the training process, without TensorFlow."""
