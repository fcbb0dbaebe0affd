"""`hvdft bench`: the ft backend against stock Horovod, in one run, the sides taking turns."""
