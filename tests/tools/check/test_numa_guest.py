"""On a machine with two NUMA nodes, CPUs and pages are where the plan says."""

from typing import Any

import pytest
from conftest import ROOT

from experiments.numa.guest import run_in_guest
from experiments.numa.in_guest import CASES, RANKS, RESULT_MIB, SNAPSHOT_MIB
from experiments.numa.run import rows_of
from hvd_ft.errors import HvdFtError

MIB = 1 << 20


def on(row: dict[str, Any], what: str, nodes: list[int]) -> int:
    """The bytes of one kind that lie on these nodes."""
    return sum(row[what].get(str(node), 0) for node in nodes)


def check_worker(row: dict[str, Any]) -> None:
    there = row["planned_memory"]
    every = [0, 1]
    assert row["cpus"] == row["planned_cpus"]
    assert on(row, "own", there) > 0.75 * on(row, "own", every)
    # The first process, on node 0, has made the files; each rank has grown its own.
    assert on(row, "area", there) == on(row, "area", every) >= (1 + SNAPSHOT_MIB) * MIB
    assert on(row, "results", every) >= RESULT_MIB * MIB
    assert abs(on(row, "results", [0]) - on(row, "results", [1])) < MIB


@pytest.mark.job
@pytest.mark.shows(later=True)
@pytest.mark.timeout(3600)  # the guest has a limit of its own: silence
def test_cpus_and_pages_are_where_the_plan_says() -> None:
    try:
        said = run_in_guest(ROOT / "experiments" / "numa" / "in_guest.py")
    except HvdFtError as error:
        if "not found" in str(error) or "no kernel" in str(error):
            pytest.skip(str(error))
        raise
    rows = rows_of(said)
    assert len(rows) == 2 * RANKS * len(CASES), said
    for row in rows:
        if row["bind_to"] == "none":
            assert row["cpus"] == [0, 1, 2, 3]
            assert "ranks 0, 1 may run on several NUMA nodes" in row["warnings"][0]
            continue
        assert row["warnings"] == [], said
        if row["process"] == "worker":
            check_worker(row)
        else:
            assert row["cpus"] == row["leader_cpus"] == row["planned_cpus"]
    cores = [row for row in rows if row["bind_to"] == "core"]
    workers = {cpu for row in cores if row["process"] == "worker" for cpu in row["cpus"]}
    assert len(workers) == RANKS
    assert not workers & {cpu for row in cores if row["process"] == "agent" for cpu in row["cpus"]}
