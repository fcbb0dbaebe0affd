"""The checkpoint writer: a process of each node that writes its share of checkpoints to a disk."""
