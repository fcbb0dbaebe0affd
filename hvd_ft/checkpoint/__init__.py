"""Checkpoints of a job on disk: their format, which there are, and which of them are kept."""
