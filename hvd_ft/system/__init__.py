"""Thin wrappers of the operating system; they know nothing of training or of jobs."""
