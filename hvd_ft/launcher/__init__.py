"""`hvdft run`, one per job: starts mpirun and new generations of agents, shows the job."""
