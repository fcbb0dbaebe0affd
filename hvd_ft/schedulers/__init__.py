"""The schedulers that start jobs: what they have allocated, and how processes are started there."""
