"""`hvdft clean`: what it removes, what it asks first, and what it leaves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_ft import cli
from hvd_ft.job.directory import JobDirectory, job_path
from hvd_ft.job.peer_file import PeerFile
from hvd_ft.launcher import clean
from hvd_ft.launcher.shared_record import SharedRecord
from hvd_ft.members.leadership import Record

IDS = ("crashed", "keptone", "kepttwo", "living")


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A job that has crashed, two that could be resumed, and one that runs; where they are."""
    monkeypatch.setenv("HOROVOD_FT_ARENA_DIR", str(tmp_path))
    made = {job: JobDirectory.create(str(tmp_path), job) for job in IDS}
    for job in ("keptone", "kepttwo"):
        made[job].leave(files_stay=True)
    made["crashed"].leave(files_stay=True)
    Path(job_path(str(tmp_path), "crashed"), "kept").unlink()
    yield Path(made["living"].path).parent
    made["living"].leave()


def left(jobs: Path) -> list[str]:
    return sorted(path.name for path in jobs.iterdir())


@pytest.mark.parametrize("consents", [True, False])
def test_jobs_that_could_be_resumed_are_asked_for(jobs: Path, consents: bool) -> None:
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return consents

    said = clean.clean(clean.Request(None), ask)
    assert asked == [
        "keptone, kepttwo could be resumed (hvdft run --resume JOB). Remove also these?"
    ]
    if consents:
        assert (said, left(jobs)) == ("removed crashed, keptone, kepttwo", ["living"])
    else:
        assert said.startswith("removed crashed; keptone, kepttwo could be resumed")
        assert left(jobs) == ["keptone", "kepttwo", "living"]


def nobody(question: str) -> bool:
    raise AssertionError(question)


def test_yes_asks_nothing(jobs: Path) -> None:
    assert clean.clean(clean.Request(None, consents=True), nobody).startswith("removed crashed, ")
    assert left(jobs) == ["living"]


def test_one_that_is_named_is_removed_at_once(jobs: Path) -> None:
    assert clean.clean(clean.Request("keptone"), nobody) == "removed keptone"
    assert left(jobs) == ["crashed", "kepttwo", "living"]


@pytest.mark.parametrize("released", [True, False])
def test_what_a_job_has_in_the_shared_directory_goes_with_it(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, released: bool
) -> None:
    """Unless its launcher has not ended: the job may continue without this host."""
    shared = jobs.parent / "shared"
    shared.mkdir()
    monkeypatch.setenv("HOROVOD_FT_SHARED_DIR", str(shared))
    for job in ("keptone", "kepttwo"):
        record = Record(job, 0, "hvdft run on n0 (pid 1)", 7, 10.0, released, 0, "")
        assert SharedRecord(str(shared), job).swap(None, record)
        PeerFile(str(shared), job).meet(0, 0, 1, {}, 1.0)
    assert clean.clean(clean.Request("keptone"), nobody) == "removed keptone"
    names = {path.name.split(".")[0] for path in shared.iterdir()}
    assert names == ({"hvdft-kepttwo"} if released else {"hvdft-keptone", "hvdft-kepttwo"})


def test_a_dry_run_removes_nothing(jobs: Path) -> None:
    said = clean.clean(clean.Request(None, consents=True, dry_run=True), nobody)
    could = "(could be resumed)"
    assert said == f"would remove crashed, keptone {could}, kepttwo {could}"
    assert left(jobs) == sorted(IDS)


def test_without_a_terminal_nobody_consents(jobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["clean"]) == 0
    assert "removed crashed; keptone, kepttwo could be resumed" in capsys.readouterr().out
    assert left(jobs) == ["keptone", "kepttwo", "living"]
    assert cli.main(["clean", "--yes"]) == 0
    assert left(jobs) == ["living"]


@pytest.mark.parametrize(("answer", "consents"), [("y", True), ("", False), ("no", False)])
def test_the_terminal_is_asked(
    monkeypatch: pytest.MonkeyPatch, answer: str, consents: bool
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return f"{answer}\n"

        def write(self, _text: str) -> None:
            pass

        def flush(self) -> None:
            pass

    monkeypatch.setattr(cli.sys, "stdin", Terminal())
    monkeypatch.setattr(cli.sys, "stderr", Terminal())
    assert cli._consents("all?") is consents


@pytest.mark.parametrize(
    ("request_", "asks", "flags"),
    [
        (clean.Request(None), True, ["--yes"]),
        (clean.Request(None), False, []),
        (clean.Request("one"), None, ["one"]),
        (clean.Request(None, dry_run=True), None, ["--dry-run"]),
        (clean.Request(None, consents=True), None, ["--yes"]),
    ],
)
def test_other_hosts_are_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, request_: clean.Request, asks: bool | None, flags: list[str]
) -> None:
    commands: list[list[str]] = []

    class Done:
        returncode = 0

    def run(command: list[str], **_: object) -> Done:
        commands.append(command)
        return Done()

    monkeypatch.setattr(clean.subprocess, "run", run)
    hosts = [clean.Host("n0", 1), clean.Host("n1", 1)]
    ask = nobody if asks is None else lambda question: bool(asks)
    assert clean.clean_hosts(request_, hosts, ask) == 0
    [command] = commands
    assert command[command.index("clean") + 1 :] == flags
