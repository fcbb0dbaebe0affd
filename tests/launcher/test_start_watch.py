"""What is said of hosts on which no agent can be started."""

from hvd_ft.launcher.start_watch import cannot_reach

from hvd_ft.members.hosts import Host

HOSTS = [Host("n0", 2), Host("n1", 1)]


def test_the_remedy_names_what_starts_processes_there() -> None:
    assert cannot_reach(HOSTS, {}, {}) == ""
    assert cannot_reach(HOSTS, {"n0": "refused"}, {}) == (
        "host n0 (ranks 0, 1) cannot be reached: refused; see that 'ssh n0 true' works here and "
        "asks nothing"
    )
    slurm = {"I_MPI_HYDRA_BOOTSTRAP": "slurm"}
    assert cannot_reach(HOSTS, {"n1": "refused"}, slurm) == (
        "host n1 (rank 2) cannot be reached: refused; see that the scheduler (slurm) has allocated "
        "this host and starts jobs there"
    )
