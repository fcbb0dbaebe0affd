"""Reads a run afterwards or from outside: report, picture, log."""
