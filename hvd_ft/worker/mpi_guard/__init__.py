"""A folder that workers have in PYTHONPATH: its `mpi4py` is found before the real one."""
