"""`hvdft status` on directories of jobs that are made here: what it prints, and its errors."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from conftest import ROOT, Ended

from hvd_ft import cli, native
from hvd_ft.job.directory import job_path
from hvd_ft.status import command

SCHEMA = json.loads((ROOT / "docs/reference/status.schema.json").read_text())
LIMIT = 64 << 20
Status = Callable[..., Ended]


@pytest.fixture
def status(
    arena_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Status:
    """Gives a function that runs `hvdft status` with these arguments."""
    monkeypatch.setenv("HOROVOD_FT_ARENA_DIR", str(arena_dir))

    def run(*arguments: str) -> Ended:
        code = cli.main(["status", *arguments])
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return run


def make(arena_dir: Path, job: str) -> Path:
    folder = Path(job_path(str(arena_dir), job))
    folder.mkdir(parents=True)
    native.create_node(str(folder), job, 1, LIMIT)
    native.create_rank(str(folder), job, 0, LIMIT)
    return folder


def test_the_only_job_is_taken(status: Status, arena_dir: Path) -> None:
    make(arena_dir, "job1")
    for job in ([], ["job1"], [job_path(str(arena_dir), "job1")]):
        ended = status(*job)
        assert ended.code == 0
        assert ended.out.startswith("job job1 on ")
        assert "hvdft clean job1 removes its files" in ended.out.replace("\n", " "), "it is dead"


def test_json_has_the_form_that_its_schema_says(status: Status, arena_dir: Path) -> None:
    make(arena_dir, "job1")
    ended = status("--json")
    found = json.loads(ended.out)
    jsonschema.validate(found, SCHEMA)
    assert (found["schema"], found["state"]) == ("hvd_ft.status/1", "dead")
    found["schema"] = "hvd_ft.status/2"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, SCHEMA)


def test_several_jobs(status: Status, arena_dir: Path) -> None:
    for job in ("job1", "job2"):
        make(arena_dir, job)
    ended = status()
    assert ended.code == 0
    assert [line.split()[:2] for line in ended.out.splitlines()[2:]] == [
        ["job1", "dead"],
        ["job2", "dead"],
    ]
    ended = status("--json")
    assert ended.code == 2
    assert "job1, job2; give its id" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ([], "which job? Running on this node with arenas in"),
        (["gone"], "of one that is over hvdft report shows the report"),
    ],
)
def test_no_such_job(status: Status, job: list[str], said: str) -> None:
    ended = status(*job)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_job_of_somebody_else(
    status: Status, arena_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(arena_dir, "job1")

    def refuse(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", refuse)  # the tests' user may read everything
    ended = status(str(folder))
    assert ended.code == 2
    assert "is not yours, so job" in ended.err
    assert "ask as the user who runs it" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_watch_without_a_terminal(status: Status, arena_dir: Path) -> None:
    make(arena_dir, "job1")
    ended = status("--watch")
    assert ended.code == 2
    assert "give --json too" in ended.err


def test_a_watch_in_json_ends_with_the_job(status: Status, arena_dir: Path) -> None:
    make(arena_dir, "job1")
    ended = status("--watch", "--json")
    [line] = ended.out.splitlines()
    jsonschema.validate(json.loads(line), SCHEMA)


def test_what_is_no_arena(status: Status, tmp_path: Path) -> None:
    (tmp_path / "node.arena").write_bytes(b"x" * 4096)
    os.chmod(tmp_path / "node.arena", 0o600)
    ended = status(str(tmp_path))
    assert ended.code == 2
    assert "is not an arena of hvd_ft" in ended.err


@pytest.mark.parametrize(("columns", "width"), [(None, 160), ("70", 70)])
def test_lines_in_a_file_are_wide(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert command._console().width == width
