"""Shared by all processes of a job: settings, directory, placement, life-line."""
