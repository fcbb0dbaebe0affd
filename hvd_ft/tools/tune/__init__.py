"""Finds settings by measuring: `hvdft probe`, `hvdft tune`."""
