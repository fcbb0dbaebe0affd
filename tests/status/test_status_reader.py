"""The status of jobs whose arenas are made here; and that reading it changes nothing."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hvd_ft import native
from hvd_ft.job.member_file import write_members
from hvd_ft.job.report_file import write_report_path
from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership
from hvd_ft.native.agent import Agent
from hvd_ft.status.reader import Reader
from hvd_ft.status.recoveries import checkpoints, recoveries
from hvd_ft.status.snapshot import JobStatus

LIMIT = 64 << 20
NS = 1_000_000_000


@pytest.fixture
def job(arena_dir: Path) -> Iterator[Path]:
    """The directory of a job with two ranks on this node."""
    native.create_node(str(arena_dir), "job1", 2, LIMIT)
    for rank in range(2):
        native.create_rank(str(arena_dir), "job1", rank, LIMIT)
    yield arena_dir


@pytest.fixture
def agents(job: Path) -> Iterator[list[Agent]]:
    with ExitStack() as stack:
        found = []
        for rank in range(2):
            agent = Agent(str(job), "job1", rank)
            stack.callback(agent.close)
            found.append(agent)
        yield found


@pytest.fixture
def reader(job: Path) -> Iterator[Reader]:
    observer = native.Observer(str(job))
    yield Reader(
        observer, str(job), lambda events, now: (recoveries(events, now), checkpoints(events, now))
    )
    observer.close()


def read(reader: Reader) -> JobStatus:
    return reader.read(time.monotonic_ns())


WORKER = """\
import sys
from hvd_ft import native
worker = native.worker()
worker.set_step(int(sys.argv[1]))
"""


def run_worker(job: Path, rank: int, incarnation: int, step: int) -> None:
    """Runs a worker that attaches, trains to a step, and is gone."""
    environment = {
        "HOROVOD_FT_DIR": str(job),
        "HOROVOD_FT_JOB": "job1",
        "HOROVOD_RANK": str(rank),
        "HOROVOD_FT_INCARNATION": str(incarnation),
    }
    command = [sys.executable, "-c", WORKER, str(step)]
    subprocess.run(command, env={**os.environ, **environment}, check=True)


def test_a_job_that_has_not_begun(reader: Reader, job: Path) -> None:
    status = read(reader)
    assert (status.state, status.size, status.step, status.generation) == ("starting", 2, 0, 0)
    assert status.job == job.name
    assert status.rank_0_here
    assert [rank.state for rank in status.ranks] == ["starting"] * 2
    assert [rank.host for rank in status.ranks] == [os.uname().nodename] * 2
    assert [node.first_rank for node in status.memory] == [0]
    assert status.memory[0].limit == LIMIT
    assert status.news_seconds is None
    assert (status.members, status.recoveries, status.report) == ([], [], None)


def test_a_death_is_a_recovery_from_then_on(reader: Reader, agents: list[Agent], job: Path) -> None:
    agents[1].started(0, 4321)
    run_worker(job, 1, 0, 12)
    assert read(reader).ranks[1].step == 12
    agents[1].failed(9)
    status = read(reader)
    assert (status.state, status.ranks[1].state) == ("recovering", "restarting")
    [death] = status.recoveries
    assert (death.rank, death.incarnation, death.cause) == (1, 0, "signal 9")
    assert death.total_seconds is None
    agents[1].started(1, 4322)
    run_worker(job, 1, 1, 0)
    status = read(reader)
    assert status.ranks[1].incarnation == 1
    assert set(status.recoveries[0].parts) == {"process start", "import"}
    assert 0 <= status.recoveries[0].seconds_ago < 600


def test_all_are_done(reader: Reader, agents: list[Agent]) -> None:
    for agent in agents:
        agent.done(0)
    assert read(reader).state == "over"


def test_hosts_and_the_report_are_named(reader: Reader, job: Path) -> None:
    write_members(str(job), Membership.first([Host("n0", 1), Host("n1", 1)], 2))
    write_report_path(str(job), "run.jsonl")
    status = read(reader)
    assert [rank.host for rank in status.ranks] == ["n0", "n1"]
    assert [(m.host, m.first_rank, m.ranks) for m in status.members] == [("n0", 0, 1), ("n1", 1, 1)]
    assert status.report == os.path.abspath("run.jsonl")


def test_another_node_knows_rank_0_through_the_mirror(arena_dir: Path) -> None:
    native.create_node(str(arena_dir), "job1", 4, LIMIT, nodes=2, node=1, local=range(2, 4))
    for rank in (2, 3):
        native.create_rank(str(arena_dir), "job1", rank, LIMIT)
    observer = native.Observer(str(arena_dir))
    status = Reader(observer, str(arena_dir)).read(5 * NS)
    observer.close()
    assert not status.rank_0_here
    assert [rank.here for rank in status.ranks] == [False, False, True, True]
    assert [rank.host for rank in status.ranks][:2] == [None, None]
    assert status.news_seconds is None


def test_the_age_of_the_mirrors_news(
    reader: Reader, agents: list[Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_here", range(1, 2))
    begin = time.monotonic_ns()
    reader.look(begin)
    assert reader.read(begin + 1000).news_seconds is None
    agents[0].started(0, 4321)
    assert reader.read(begin + 3 * NS).news_seconds == 0.0
    assert reader.read(begin + 5 * NS).news_seconds == 2.0
    agents[1].started(0, 4321)  # of this node: no news of the others
    assert reader.read(begin + 6 * NS).news_seconds == 3.0


def beginnings(folder: Path) -> dict[str, bytes]:
    """Reads the beginning of each file."""
    found = {}
    for path in folder.iterdir():
        with path.open("rb") as file:
            found[path.name] = file.read(1 << 20)
    return found


def test_reading_changes_nothing(reader: Reader, agents: list[Agent], job: Path) -> None:
    agents[0].started(0, 4321)
    before = beginnings(job)
    read(reader)
    assert beginnings(job) == before
