"""Checks that the software that a job needs is installed."""
