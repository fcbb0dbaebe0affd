"""Reads the hosts that a scheduler has allocated, and how processes are started on them."""
