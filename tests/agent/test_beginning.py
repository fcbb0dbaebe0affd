"""How a job began is known to agents of every generation, on whatever hosts they are."""

import itertools
import shutil
import stat
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from hvd_ft.agent.beginning import Beginning, beginning
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rendezvous import FailedElsewhere, Rendezvous
from hvd_ft.agent.resuming import Resumed
from hvd_ft.errors import HvdFtError
from hvd_ft.job.launch import Launch
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings

HOSTS = Nodes((0, 2, 3, 4))
CHECKPOINT = Resumed("/c/job1-loop0-step00000003", "job1", [0])
T = TypeVar("T")


class World:
    """What agents meet in; each is a thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: list[Any] = [None] * size
        self._barrier = threading.Barrier(size)

    def of(self, rank: int) -> Rendezvous:
        """A rank's rendezvous, with only MPI replaced."""
        meeting = object.__new__(Rendezvous)
        meeting.rank, meeting.size = rank, self.size
        meeting._in_time = lambda _: nullcontext()  # type: ignore[method-assign,assignment,return-value]
        meeting._world = cast("Any", _Communicator(self, rank))
        return meeting

    def allgather(self, rank: int, value: Any) -> list[Any]:
        self._values[rank] = value
        self._barrier.wait()
        values = list(self._values)
        self._barrier.wait()
        return values


class _Communicator:
    def __init__(self, world: World, rank: int) -> None:
        self._world, self._rank = world, rank

    def allgather(self, value: Any) -> list[Any]:
        return self._world.allgather(self._rank, value)


def on_all(size: int, act: Callable[[Rendezvous], T]) -> list[T | HvdFtError]:
    """Has all agents of a job do something; returns what became of it, by rank."""
    world, ends = World(size), cast("list[T | HvdFtError]", [None] * size)

    def run(rank: int) -> None:
        try:
            ends[rank] = act(world.of(rank))
        except HvdFtError as error:
            ends[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


class Job:
    """A job on three hosts with a directory each."""

    def __init__(self, folder: Path, checkpoint: Resumed | None) -> None:
        self.folder, self._checkpoint = folder, checkpoint
        self.chosen = 0
        for host in range(len(HOSTS)):
            (folder / f"{host}").mkdir()

    def replace(self, *hosts: int) -> None:
        for host in hosts:
            shutil.rmtree(self.folder / f"{host}")
            (self.folder / f"{host}").mkdir()

    def begin(self, generation: int, resume_dir: str | None = "/c") -> list[Any]:
        settings, launch = Settings(resume_dir=resume_dir), Launch(generation=generation)

        def agent(meeting: Rendezvous) -> Beginning:
            host = HOSTS.node_of(meeting.rank)
            directory = str(self.folder / f"{host}")
            context = JobContext(meeting.rank, settings, HOSTS, "job", directory, launch)
            return beginning(meeting, context, resume)

        def resume(*_: object) -> Resumed | None:
            self.chosen += 1
            return self._checkpoint

        return on_all(HOSTS.bounds[-1], agent)


@pytest.mark.parametrize("checkpoint", [CHECKPOINT, None], ids=["resumed", "new"])
def test_hosts_that_are_new_in_a_job_learn_how_it_began(
    tmp_path: Path, checkpoint: Resumed | None
) -> None:
    job = Job(tmp_path, checkpoint)
    first = job.begin(0)
    assert first[0].resumed == checkpoint and first == [first[0]] * 4 and job.chosen == 4
    job.replace(1)
    assert job.begin(1) == first
    job.replace(0, 2)  # now only the one that was new itself knows
    assert job.begin(2, resume_dir=None) == first, "another launcher may have other settings"
    assert job.begin(3) == first
    assert job.chosen == 4, "no checkpoint is looked for again"
    for host in range(3):
        [note] = (tmp_path / f"{host}").iterdir()
        assert stat.S_IMODE(note.stat().st_mode) == 0o600


def test_hosts_with_different_clocks_note_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By it their shares of a checkpoint are known to be of one job."""
    clocks = itertools.count(1000, 100)
    monkeypatch.setattr("hvd_ft.agent.beginning.time.time", lambda: next(clocks))
    job = Job(tmp_path, None)
    first = job.begin(0)
    assert first == [first[0]] * 4
    notes = {(tmp_path / f"{host}" / "beginning").read_bytes() for host in range(3)}
    assert len(notes) == 1


@pytest.mark.parametrize(
    "torn",
    [
        *("", "{", "[]", '{"begun": 5}', '{"begun": 5, "resumed": {}}', "[" * 100_000),
        '{"begun": 1e999, "resumed": null}',
        '{"begun": 5, "resumed": {"path": 5, "run": "r", "loops": [0]}}',
        '{"begun": 5, "resumed": {"path": "p", "run": "r", "loops": "0"}}',
    ],
)
def test_a_note_that_is_torn_is_written_anew(tmp_path: Path, torn: str) -> None:
    job = Job(tmp_path, CHECKPOINT)
    first = job.begin(0)
    (tmp_path / "0" / "beginning").write_text(torn)
    assert job.begin(1) == first
    job.replace(1, 2)
    assert job.begin(2) == first


def test_a_job_whose_first_agents_ended_before_they_noted_anything_begins_later(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, CHECKPOINT)
    assert job.begin(1) == job.begin(2)
    assert job.chosen == 4


def test_an_error_of_the_filesystem_ends_the_wait_of_all_agents(tmp_path: Path) -> None:
    job = Job(tmp_path, None)
    shutil.rmtree(tmp_path / "1")
    ends = job.begin(0)
    assert all(isinstance(end, HvdFtError) for end in ends)
    assert "rank 2 cannot continue in noting how the job began" in str(ends[2])
    assert f"{tmp_path}/1/beginning" in str(ends[2])
    assert [isinstance(end, FailedElsewhere) for end in ends] == [True, True, False, True]
