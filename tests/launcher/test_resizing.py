"""A job in parts, on hosts that come and go: which parts there are, and how it ends."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher import job as launcher_job
from hvd_ft.launcher import resizing
from hvd_ft.launcher.job import Job, ResolvedJob, resolve
from hvd_ft.launcher.machine.actions import End as Ended
from hvd_ft.launcher.machine.seen import HostChange
from hvd_ft.launcher.resizing import launch_resizing, part_name
from hvd_ft.members.hosts import Host, host_list, parse_hosts
from hvd_ft.members.resizing_rule import Limits, added, withdrawn
from hvd_ft.system.apart import Apart

LOST = Ended(1, lost=("n1",))
RESIZED = Ended(143, resized=True)
Part = Callable[["Made", Job, Any], Ended]


class Hosts:
    """What the hosts are called by whoever names them; each change is told once."""

    def __init__(self, text: str) -> None:
        self.set(text)
        self.closed = False

    def set(self, text: str) -> None:
        self._new: Sequence[Host] | None = parse_hosts(text, 0)

    def poll(self, now: float) -> Sequence[Host] | None:
        found, self._new = self._new, None
        return found

    def close(self) -> None:
        self.closed = True


class AtOnce(Apart[Any]):
    """A call that has ended when it begins."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act, self._ended = act, lambda: None
        self._value, self._error = [], None
        self._run()


class Made:
    """Runs a job whose parts end as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.jobs: list[Job] = []
        self.said: list[str] = []
        self.hosts = Hosts("n0:2,n1:1,n2:1")
        self.unreachable: set[str] = set()
        self.apart = False
        self.leaves = True  # a checkpoint, by every part
        self.folder = tmp_path
        self._parts: list[Part | Ended] = []
        monkeypatch.setattr(resizing, "say", self.said.append)
        monkeypatch.setattr(resizing, "run_job", self._run_job)
        monkeypatch.setattr(resizing, "find", self._find)
        monkeypatch.setattr(resizing, "Apart", AtOnce)
        monkeypatch.setattr(resizing.reach, "Probe", self._probe)

    def _run_job(
        self, resolved: ResolvedJob, display: object, resizing: Any, page: object, outcome: object
    ) -> Ended:
        job = resolved.job
        self.jobs.append(job)
        part = self._parts.pop(0)
        return part if isinstance(part, Ended) else part(self, job, resizing)

    def _find(self, directory: Path) -> list[Any]:
        assert directory == self.folder
        names = [job.id for job in self.jobs] if self.leaves else []
        return [
            SimpleNamespace(
                path=directory / name,
                refused="",
                manifest=SimpleNamespace(job=name, apart=self.apart),
            )
            for name in [*names, "another"]  # the newest is another training's
        ]

    def _probe(self, host: str, environment: object) -> Any:
        reason = "no route" if host in self.unreachable else ""
        return SimpleNamespace(result=lambda: reason, close=lambda: None)

    def run(self, *parts: Part | Ended, limits: Limits | None = None, timeout: float = 9.0) -> int:
        self._parts = list(parts)
        job = Job(
            4,
            ["python"],
            report="run.jsonl",
            inject=["rank=0,step=1,raise"],
            given={"HOROVOD_FT_CHECKPOINT_DIR": str(self.folder)},
            limits=replace(limits or Limits(2, 4), timeout=timeout),
        )
        code = launch_resizing(resolve(job), self.hosts, contextlib.nullcontext)  # type: ignore[arg-type]
        assert self.hosts.closed
        return code

    def parts(self) -> list[tuple[str, str | None]]:
        """Returns hosts, and what it went on from, of each part."""
        resumed = [job.given.get("HOROVOD_FT_RESUME_DIR") for job in self.jobs]
        return [
            (host_list(job.hosts), path and Path(path).name)
            for job, path in zip(self.jobs, resumed, strict=True)
        ]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Made:
    return Made(monkeypatch, tmp_path)


def test_a_job_that_loses_nothing_is_one_part(made: Made) -> None:
    assert made.run(Ended(0)) == 0
    assert made.parts() == [("n0:2,n1:1,n2:1", None)]
    assert made.jobs[0].given["HOROVOD_FT_GRACE_SECONDS"] == "60"


def test_a_failure_is_not_tried_again(made: Made) -> None:
    assert made.run(Ended(3)) == 3
    assert len(made.jobs) == 1


def test_a_lost_host_is_done_without(made: Made) -> None:
    assert made.run(LOST, Ended(0)) == 0
    first, second = made.jobs
    assert made.parts() == [("n0:2,n1:1,n2:1", None), ("n0:2,n2:1", first.id)]
    assert (second.size, second.report, second.inject) == (3, "run-2.jsonl", ())
    assert second.id != first.id
    assert "the job continues with 3 ranks on n0:2,n2:1" in made.said


def test_without_a_checkpoint_the_job_begins_again(made: Made) -> None:
    made.leaves = False
    assert made.run(LOST, Ended(0)) == 0
    assert made.parts()[1] == ("n0:2,n2:1", None)
    assert any("had no state yet" in line for line in made.said)


def test_hosts_with_a_directory_each_cannot_go_on(made: Made) -> None:
    made.apart = True
    with pytest.raises(HvdFtError, match="give --checkpoint-dir one that all hosts share"):
        made.run(LOST)
    assert made.hosts.closed


def test_too_few_ranks_end_the_job_with_its_checkpoint(made: Made) -> None:
    assert made.run(LOST, limits=Limits(4, 4), timeout=0.6) == 1
    [job] = made.jobs
    assert made.said[-1] == (
        "there were not 4 slots within 0.6 s, so the job was ended; "
        f"hvdft run --resume {made.folder / job.id} continues it"
    )


def test_a_job_begins_with_as_many_ranks_as_it_was_given(made: Made) -> None:
    made.hosts.set("n0:2")
    assert made.run(timeout=0.6) == 1
    assert made.jobs == []
    assert made.said[-1].endswith("so the job was ended; it has left no checkpoint")


def test_a_host_that_is_found_is_taken_in(made: Made) -> None:
    def grows(made: Made, job: Job, running: Any) -> Ended:
        assert running.change(1.0) is None
        made.hosts.set("n0:2,n1:1,n2:1,n3:2")
        assert running.change(2.0) is None  # it is probed first
        n3 = (Host("n3", 2),)
        assert running.change(3.0) == HostChange("the hosts have changed (n3 more)", 6, (), n3)
        return RESIZED

    assert made.run(grows, Ended(0), limits=Limits(2, 6)) == 0
    assert made.parts()[1] == ("n0:2,n1:1,n2:1,n3:2", made.jobs[0].id)


def test_a_host_that_cannot_be_reached_is_not_taken_in(made: Made) -> None:
    made.unreachable = {"n3"}

    def stays(made: Made, job: Job, running: Any) -> Ended:
        made.hosts.set("n0:2,n1:1,n2:1,n3:2")
        assert [running.change(now) for now in (1.0, 2.0, 3.0, 4.0, 5.0)] == [None] * 5
        return Ended(0)

    assert made.run(stays, limits=Limits(2, 6)) == 0
    assert made.said == ["host n3 cannot be reached: no route"]


def test_a_name_server_that_does_not_answer_does_not_stop_the_loop_that_renews_leases(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grows(made: Made, job: Job, running: Any) -> Ended:
        monkeypatch.setattr(resizing, "Apart", Apart)
        monkeypatch.setattr(launcher_job, "listen_address", lambda *_: answers.wait() and "")
        made.hosts.set("n0:2,n1:1,n2:1,n3:2")
        assert [running.change(now) for now in (1.0, 2.0, 3.0)] == [None] * 3
        answers.set()
        while not (change := running.change(4.0)):
            pass
        assert change.added == (Host("n3", 2),)
        return RESIZED

    answers = threading.Event()
    assert made.run(grows, Ended(0), limits=Limits(2, 6)) == 0


def test_a_host_of_which_nothing_can_be_found_out_is_not_taken_in(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise HvdFtError("there is no interface")

    def stays(made: Made, job: Job, running: Any) -> Ended:
        monkeypatch.setattr(launcher_job, "listen_address", refuse)
        made.hosts.set("n0:2,n1:1,n2:1,n3:2")
        assert [running.change(now) for now in (1.0, 2.0, 3.0)] == [None] * 3
        return Ended(0)

    assert made.run(stays, limits=Limits(2, 6)) == 0
    assert made.said == ["host n3 cannot be reached: there is no interface"]


def test_a_lost_host_comes_back_after_its_cooldown(made: Made) -> None:
    def grows(made: Made, job: Job, running: Any) -> Ended:
        assert running.change(0.0) is None
        beyond = 1e12
        assert running.change(beyond) is None  # it is probed again
        assert "n1 more" in running.change(beyond).why
        return RESIZED

    ends = made.run(LOST, grows, Ended(0), limits=Limits(2, 4, (50.0, 100.0)))
    assert ends == 0
    # At the real time its cooldown is not over.
    assert made.parts()[2] == ("n0:2,n2:1", made.jobs[1].id)


def test_in_place_hosts_are_given_up_or_lost_and_come_back(made: Made) -> None:
    def changes(made: Made, job: Job, running: Any) -> Ended:
        made.hosts.set("n0:2,n2:1")
        less = HostChange("the hosts have changed (n1 less)", 3, ("n1",), ())
        assert running.change(1.0) == less
        running.left(["n1"], lost=False)
        assert running.change(2.0) is None
        made.hosts.set("n0:2,n1:1,n2:1")
        assert running.change(3.0).why == "the hosts have changed (n1 more)"  # it may come back
        made.hosts.set("n0:2,n2:1")
        running.left(["n2"], lost=True)
        assert running.change(4.0) is None
        made.hosts.set("n0:2,n1:1,n2:1")
        more = HostChange("the hosts have changed (n1 more)", 3, (), (Host("n1", 1),))
        assert running.change(5.0) == more
        running.joined(more.added)
        assert running.change(6.0) is None
        return Ended(0)

    assert made.run(changes, limits=Limits(2)) == 0


def test_only_whole_hosts_leave_in_place() -> None:
    two = [Host("n0", 2), Host("n1", 2)]
    assert withdrawn(two, two[:1]) == ("n1",)
    assert withdrawn(two, [Host("n0", 2), Host("n1", 1)]) == ()
    assert withdrawn(two, [Host("n0", 2), Host("n2", 2)]) == ()


def test_only_whole_hosts_return_in_place() -> None:
    two = [Host("n0", 2), Host("n1", 2)]
    assert added(two, [*two, Host("n2", 1)]) == (Host("n2", 1),)
    assert added(two, [Host("n0", 3), Host("n1", 2)]) == ()
    assert added(two, [Host("n0", 2), Host("n2", 2)]) == ()


def test_names_of_reports() -> None:
    assert [part_name("a/run.jsonl", number) for number in (1, 2, 3)] == [
        "a/run.jsonl",
        "a/run-2.jsonl",
        "a/run-3.jsonl",
    ]
    assert part_name(None, 2) is None


def test_the_user_is_heard_while_the_checkpoint_s_directory_does_not_answer(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def find(directory: Path) -> list[Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        answers.wait()
        return []

    monkeypatch.setattr(resizing, "find", find)
    assert made.run(LOST) == 143
    assert len(made.jobs) == 1
    answers.set()


def test_a_directory_that_never_answers_ends_the_job(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(resizing, "find", lambda directory: answers.wait() and [])
    apart = resizing.call_apart
    at_once = lambda loop, act, _, stopped: apart(loop, act, 0, stopped)  # noqa: E731
    monkeypatch.setattr(resizing, "call_apart", at_once)
    with pytest.raises(HvdFtError, match=r"has not answered for 0 s.*see that the directory"):
        made.run(LOST)
    answers.set()
