"""Fault-tolerant Horovod over MPI: a rank that dies is restarted, the others wait and carry on."""

__version__ = "0.1.0"
