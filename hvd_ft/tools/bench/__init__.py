"""`hvdft bench`: the ft backend against stock Horovod, in one run, taking turns."""
