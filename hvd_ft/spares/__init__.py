"""Warm spares: processes that have imported TensorFlow and wait to become a worker."""
