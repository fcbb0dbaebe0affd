from hvd_ft.agent.job_context import JobContext
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings

HOSTS = Nodes((0, 2, 5))  # ranks 0 and 1, and 2 to 4


def context(rank: int, topology: str) -> JobContext:
    return JobContext(rank, Settings(topology=topology), HOSTS, "job", "/dir")


def test_a_host_is_a_node_with_arenas_in_the_jobs_directory() -> None:
    assert context(3, "hierarchical").nodes == HOSTS
    assert [context(rank, "hierarchical").arenas for rank in range(5)] == 5 * ["/dir"]


def test_in_the_flat_topology_every_rank_has_arenas_of_its_own() -> None:
    assert len(context(3, "flat").nodes) == 5
    # A host's first rank has them where observers look.
    places = [context(rank, "flat").arenas for rank in range(5)]
    assert places == ["/dir", "/dir/rank-1", "/dir", "/dir/rank-3", "/dir/rank-4"]
