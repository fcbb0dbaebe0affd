"""The launcher with a shell script in the place of mpirun. `$PPID` there is the launcher."""

import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import JobDirectory
from hvd_ft.job.lifeline import LifeLines
from hvd_ft.job.processes import job_processes
from hvd_ft.launcher import job_driver as launcher
from hvd_ft.launcher.job import Job, resolve
from hvd_ft.launcher.machine.job_machine import TICK_SECONDS
from hvd_ft.launcher.run import launch as launch_resolved
from hvd_ft.launcher.shared_record import SharedRecord
from hvd_ft.members.hosts import Host
from hvd_ft.members.leadership import Record
from hvd_ft.members.resizing_rule import Limits

FakeMpirun = Callable[[str], None]


@pytest.fixture
def mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMpirun:
    """Gives a function that makes a script mpirun, and a place of its own for arenas."""
    arenas = tmp_path / "arenas"
    arenas.mkdir()
    monkeypatch.setenv("HOROVOD_FT_ARENA_DIR", str(arenas))
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    path = f"{tmp_path}:{os.environ['PATH']}"
    monkeypatch.setattr("hvd_ft.launcher.job.mpi_environment", lambda *_: {"PATH": path})
    monkeypatch.setattr("hvd_ft.launcher.job.check_environment", lambda: None)

    def make(script: str) -> None:
        program = tmp_path / "mpiexec.hydra"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)

    return make


def launch(job: Job, display: Any = None) -> int:
    return launch_resolved(resolve(job), display)


class Recorder:
    takes_output = True

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, observer: object) -> None:
        raise AssertionError("there is no arena")

    def output(self, line: str) -> None:
        self.lines.append(line)


JOB_COMMAND = ["true", "--flag", "two words"]


@pytest.mark.parametrize("code", [0, 1, 7, 137])
def test_the_exit_code_is_the_jobs(mpirun: FakeMpirun, code: int) -> None:
    mpirun(f"exit {code}")
    assert launch(Job(2, JOB_COMMAND)) == code


def test_the_agents_get_their_flags_and_the_command(mpirun: FakeMpirun) -> None:
    mpirun('printf "%s\\n" "$@"')
    shown = Recorder()
    launch(Job(3, JOB_COMMAND, on_failure="echo a", on_restart="echo b", report="r"), shown)
    assert shown.lines[:2] == ["-np", "3"]
    hooks = ["--on-failure", "echo a", "--on-restart", "echo b"]
    assert shown.lines[3:5] == ["-m", "hvd_ft.agent"]
    assert shown.lines[5:] == [*hooks, "--report", "r", "--", *JOB_COMMAND]


def test_several_hosts_are_told_by_a_machine_file(mpirun: FakeMpirun) -> None:
    mpirun('printf "%s\\n" "$@"')
    shown = Recorder()
    launch(Job(3, JOB_COMMAND, machine_file="m"), shown)
    assert shown.lines[:4] == ["-np", "3", "-machinefile", "m"]


def test_a_stray_process_that_holds_the_output_does_not_hold_the_launcher(
    mpirun: FakeMpirun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "CLEAR_LIMIT_SECONDS", 0.0)
    mpirun("echo last; sleep 1000 & exit 4")
    shown = Recorder()
    assert launch(Job(1, JOB_COMMAND), shown) == 4
    assert shown.lines == ["last"]


def test_the_jobs_id_is_in_the_environment(mpirun: FakeMpirun) -> None:
    mpirun("echo $HOROVOD_FT_JOB")
    shown = Recorder()
    job = Job(1, JOB_COMMAND)
    launch(job, shown)
    assert shown.lines == [job.id]


def test_output_of_both_streams_comes_line_by_line_to_the_last(mpirun: FakeMpirun) -> None:
    mpirun("echo one; echo two >&2; printf three")
    shown = Recorder()
    launch(Job(1, JOB_COMMAND), shown)
    assert shown.lines == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("number", "code"),
    [("INT", 130), ("TERM", 143), ("HUP", 129)],
    ids=["Ctrl-C", "SIGTERM", "closed-terminal"],
)
def test_a_signal_before_all_agents_are_there_kills(
    mpirun: FakeMpirun, number: str, code: int
) -> None:
    mpirun(f"trap : INT TERM HUP; kill -{number} $PPID\nwhile :; do sleep 0.01; done")
    assert launch(Job(1, JOB_COMMAND)) == code


def test_mpirun_killed_from_outside_is_said(
    mpirun: FakeMpirun, capsys: pytest.CaptureFixture[str]
) -> None:
    mpirun("kill -KILL $$")
    assert launch(Job(1, JOB_COMMAND)) == 137
    assert "hvdft: mpirun was killed by SIGKILL" in capsys.readouterr().err


def test_no_process_is_left(
    mpirun: FakeMpirun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launcher, "CLEAR_LIMIT_SECONDS", 0.05)
    mpirun("setsid sleep 1000 & echo $! >$OUT; exit 3")
    job = Job(1, JOB_COMMAND)
    assert launch(job) == 3
    assert job_processes(job.id) == []
    sleeper = Path("/proc", (tmp_path / "out").read_text().strip(), "cmdline")
    assert not sleeper.exists() or not sleeper.read_bytes()  # gone or a zombie


def test_no_file_is_left(mpirun: FakeMpirun, tmp_path: Path) -> None:
    # As after a kill of all agents and shims at once.
    mpirun(
        "umask 077; d=$HOROVOD_FT_ARENA_DIR/hvdft-$(id -u)/$HOROVOD_FT_JOB\n"
        "mkdir -p $d; touch $d/lock $d/node.arena; echo $d >$OUT; exit 5"
    )
    assert launch(Job(1, JOB_COMMAND)) == 5
    assert not Path((tmp_path / "out").read_text().strip()).exists()


def test_what_an_earlier_job_left_is_removed_and_said(
    mpirun: FakeMpirun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = tmp_path / "arenas" / f"hvdft-{os.getuid()}" / "dead1"
    left.mkdir(parents=True, mode=0o700)
    left.parent.chmod(0o700)
    (left / "lock").touch(0o600)
    mpirun("exit 0")
    assert launch(Job(1, JOB_COMMAND)) == 0
    assert not left.exists()
    assert "removed what the crashed job dead1 had left" in capsys.readouterr().err


def test_a_job_that_could_be_resumed_outlives_other_jobs(
    mpirun: FakeMpirun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`hvdft clean` asks before it removes one; a run asks nobody."""
    kept = JobDirectory.create(str(tmp_path / "arenas"), "keptone")
    kept.leave(files_stay=True)
    mpirun("exit 0")
    for _ in range(2):
        assert launch(Job(1, JOB_COMMAND)) == 0
        assert Path(kept.path, "lock").exists()
        said = capsys.readouterr().err
        assert "job keptone could be resumed (hvdft run --resume keptone)" in said
        assert "removed what" not in said


def test_without_intel_mpi_nothing_is_started(
    mpirun: FakeMpirun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hvd_ft.launcher.job.mpi_environment", lambda *_: {"PATH": str(tmp_path)})
    with pytest.raises(HvdFtError, match=r"mpiexec\.hydra is not in PATH; run: pip install"):
        launch(Job(1, JOB_COMMAND))


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job(0, ["true"]), "-np 0: a job has at least 1 rank"),
        (Job(-1, ["true"]), "-np -1: a job has at least 1 rank"),
        (Job(1, []), "no training command"),
        (Job(1, ["./none"]), r"command \./none was not found"),
        (Job(1, ["python3", "none.py"]), r"script none\.py was not found"),
    ],
)
def test_a_job_that_cannot_run_is_refused_at_once(
    mpirun: FakeMpirun, tmp_path: Path, job: Job, message: str
) -> None:
    mpirun("touch $OUT")
    with pytest.raises(HvdFtError, match=message):
        launch(job)
    assert not (tmp_path / "out").exists()


def test_the_command_is_found_by_the_jobs_path(mpirun: FakeMpirun, tmp_path: Path) -> None:
    program = tmp_path / "only-there"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    mpirun("exit 0")
    assert launch(Job(1, ["only-there"])) == 0


def test_a_job_that_cannot_begin_leaves_nothing_behind(
    mpirun: FakeMpirun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listened = []

    class Watched(LifeLines):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            listened.append(int(self.address.split(":")[1]))

    def refuse(*_: object) -> None:
        raise OSError(24, os.strerror(24))

    mpirun("true")
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("HOROVOD_FT_SHARED_DIR", str(shared))
    monkeypatch.setattr(launcher, "LifeLines", Watched)
    monkeypatch.setattr(launcher, "MpirunOutput", refuse)
    before = len(os.listdir("/proc/self/fd"))
    job = Job(2, JOB_COMMAND, machine_file="m", hosts=[Host("n0", 1), Host("n1", 1)])
    with pytest.raises(OSError, match="Too many"):
        launch(job)
    assert not list(shared.iterdir()), "another hvdft run would wait for this one's lease"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", listened[0]))
    assert len(os.listdir("/proc/self/fd")) == before


def test_nothing_looks_at_a_job_that_has_ended_while_its_files_are_removed(
    mpirun: FakeMpirun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The shared directory may not answer for seconds, and the loop runs meanwhile."""
    looked: list[bool] = []
    look, apart = launcher.JobSight.look, launcher.call_apart
    ended = []

    def slow(loop: Any, act: Any, seconds: float, stopped: Any) -> Any:
        ended.append(True)
        for _ in range(3):
            loop.run_once(TICK_SECONDS)
        return apart(loop, act, seconds, stopped)

    def noted(sight: Any) -> None:
        looked.append(bool(ended))
        look(sight)

    mpirun("true")
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("HOROVOD_FT_SHARED_DIR", str(tmp_path / "shared"))
    monkeypatch.setattr(launcher, "call_apart", slow)
    monkeypatch.setattr(launcher.JobSight, "look", noted)
    job = Job(2, JOB_COMMAND, machine_file="m", hosts=[Host("n0", 1), Host("n1", 1)])
    assert launch(job) == 0
    assert ended and looked and not any(looked)


def test_who_does_not_wait_for_the_record_gets_the_code_of_the_signal(
    mpirun: FakeMpirun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def read(self: SharedRecord) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        answers.wait()

    answers = threading.Event()
    mpirun("true")
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("HOROVOD_FT_SHARED_DIR", str(tmp_path / "shared"))
    monkeypatch.setattr(SharedRecord, "read", read)
    job = Job(2, JOB_COMMAND, machine_file="m", hosts=[Host("n0", 1), Host("n1", 1)])
    assert launch(job) == 130
    answers.set()


def test_agents_are_started_where_the_membership_says(
    mpirun: FakeMpirun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The record of a job that is resumed names a host that has taken another one's place."""
    mpirun(
        "echo $HOROVOD_FT_GENERATION: $HOROVOD_FT_MEMBERS [$HOROVOD_FT_ACT_LEASE]\n"
        "while [ $1 != -machinefile ]; do shift; done; cat $2"
    )
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("HOROVOD_FT_SHARED_DIR", str(tmp_path / "shared"))
    hosts = [Host("n0", 2), Host("n1", 2)]
    job = Job(4, JOB_COMMAND, machine_file="m", hosts=hosts, resume=True, limits=Limits(2))
    record = Record(job.id, 1, "another", 5, 10.0, True, 4, "2;n3:2@2,n1:2@0")
    assert SharedRecord(str(tmp_path / "shared"), job.id).swap(None, record)
    shown = Recorder()
    assert launch(job, shown) == 0
    assert shown.lines[0].startswith("5: 2;n3:2@2,n1:2@0 [")
    assert float(shown.lines[0].split("[")[1].strip("]")) > 0
    assert shown.lines[1:] == ["n3:2", "n1:2"]


@pytest.mark.parametrize("resume", [False, True])
def test_a_job_that_is_stopped_before_its_agents_leaves_its_record_as_it_was(
    mpirun: FakeMpirun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, resume: bool
) -> None:
    """Another launcher would wait for this one's lease, or find a job that there is not."""

    def stop(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    mpirun("true")
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("HOROVOD_FT_SHARED_DIR", str(tmp_path / "shared"))
    monkeypatch.setattr(launcher, "start_step", stop)
    hosts = [Host("n0", 1), Host("n1", 1)]
    job = Job(2, JOB_COMMAND, machine_file="m", hosts=hosts, resume=resume)
    shared = SharedRecord(str(tmp_path / "shared"), job.id)
    if resume:
        members = "0;n0:1@0,n1:1@0"
        assert shared.swap(None, Record(job.id, 1, "another", 5, 10.0, True, 4, members))
    assert launch(job) == 143
    left = shared.read()
    assert (left is not None and left.released) if resume else left is None
