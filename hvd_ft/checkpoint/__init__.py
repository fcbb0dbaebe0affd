"""Checkpoints of a job on disk: their format, how to list them, and which of them are kept."""
