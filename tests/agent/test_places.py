"""Agents make the job's files, and are bound, where the host's plan has them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hvd_ft.agent import job_context
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.job_setup import make_rank_arenas
from hvd_ft.job.binding import Place
from hvd_ft.job.bound_process import Asked
from hvd_ft.job.launch import Launch
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings
from hvd_ft.members.membership import Membership
from hvd_ft.system.process_placement import memory_of
from hvd_ft.system.topology import allowed_nodes

LIMIT = 128 << 20
BINDS = """\
import os, sys, threading
from hvd_ft.job.binding import Place
from hvd_ft.job.bound_process import bind_agent
end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
bind_agent(Place(agent_cpus=tuple(map(int, sys.argv[1:]))))
tasks = [int(task) for task in os.listdir("/proc/self/task")]
print(*({tuple(sorted(os.sched_getaffinity(task))) for task in tasks}), os.sched_getscheduler(0))
end.set()
"""
POLICIES = """\
import mmap, os, sys
from hvd_ft.system.process_placement import memory_of
maps = [mmap.mmap(os.open(path, os.O_RDONLY), 4096, prot=mmap.PROT_READ) for path in sys.argv[1:]]
policies = {part.file: part.policy for part in memory_of(os.getpid())}
print(*(policies[path] for path in sys.argv[1:]))
"""


def bound(monkeypatch: pytest.MonkeyPatch, *places: Place) -> list[tuple[int, Asked]]:
    """Gives these places to the ranks of a host; returns what the plan was asked for."""
    asked = []

    def plan_here(ranks: int, how: Asked) -> list[Place]:
        asked.append((ranks, how))
        return list(places)

    monkeypatch.setattr(job_context, "plan_here", plan_here)
    return asked


@pytest.mark.skipif(not memory_of(os.getpid()), reason="this kernel has no NUMA")
def test_a_rank_has_its_memory_and_the_node_that_of_all(
    monkeypatch: pytest.MonkeyPatch, arena_dir: Path
) -> None:
    node = allowed_nodes()[0]
    bound(monkeypatch, Place(), Place(memory=(node,)), Place())
    for rank in (1, 2):  # the first host has rank 0 only
        context = JobContext(rank, Settings(), Nodes((0, 1, 4)), "places", str(arena_dir))
        make_rank_arenas(context, 4, LIMIT, 1 << 20)
    paths = [str(arena_dir / f"{name}.arena") for name in ("node", "rank-1", "rank-2")]
    told = subprocess.run(
        [sys.executable, "-c", POLICIES, *paths], capture_output=True, check=True, text=True
    ).stdout
    assert told.split() == [f"prefer:{node}", "default", f"prefer:{node}"]


def test_a_plan_is_made_for_the_ranks_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = bound(monkeypatch, Place((1,)), Place((2,), (0,)), Place((3,), (1,)))
    settings = Settings(bind_to="core", map_by="numa")
    context = JobContext(4, settings, Nodes((0, 2, 5)), "places", "/dev/shm")
    assert context.place == Place((3,), (1,))
    assert context.memory_of(range(2, 4)) == [0]
    assert context.memory_of(range(2, 5)) == [0, 1]
    assert asked == [(3, Asked("core", "numa"))]  # once: later the agent itself is bound


def test_guests_are_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = bound(monkeypatch, Place())
    members = Membership.parse("1;n1:1@0,n1:1@1-")
    settings = Settings(bind_to="core")
    context = JobContext(
        1, settings, Nodes((0, 1, 2)), "places", "/dev/shm", Launch(members=members)
    )
    assert context.place == Place()
    assert asked == [(1, Asked("none", "slot"))]


def test_an_agent_is_bound_with_its_threads() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("there is one CPU")
    told = subprocess.run(
        [sys.executable, "-c", BINDS, str(cpus[1])], capture_output=True, check=True, text=True
    ).stdout
    assert told == f"({cpus[1]},) {os.SCHED_OTHER}\n"
