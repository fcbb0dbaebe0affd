"""Flight records: a node's part from a real arena, the file, and how it is shown."""

import io
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from conftest import ROOT
from rich.console import Console

from hvd_ft import cli, native
from hvd_ft.launcher.flight_writer import FlightWriter, contents, free_path, stem_of
from hvd_ft.launcher.machine.actions import WriteFlight
from hvd_ft.status.flight_text import is_flight_record, pieces, read_record
from hvd_ft.status.node_record import read_node
from hvd_ft.system.event_loop import EventLoop

SCHEMA = json.loads((ROOT / "docs/reference/flight_record.schema.json").read_text())
LIMIT = 64 << 20
REASONS = (("stall", "rank 1 has kept rank 0 waiting for 30 s"),)


@pytest.fixture
def node(arena_dir: Path) -> Iterator[dict[str, Any]]:
    """A node's part, of a job with two ranks."""
    native.create_node(str(arena_dir), "job1", 2, LIMIT)
    observer = native.Observer(str(arena_dir))
    yield msgspec.to_builtins(read_node(observer, str(arena_dir)))
    observer.close()


def record(node: dict[str, Any]) -> WriteFlight:
    parts = {0: {"stacks": 'File "a.py", line 1', "node": node}, 1: {"stacks": "none"}}
    return WriteFlight(REASONS, parts, ((2, "n1/boot", "late"), (3, "n1/boot", "late")))


def with_ops(node: dict[str, Any]) -> dict[str, Any]:
    op = {
        "op": 7,
        "text": "allreduce grad/a\nallreduce grad/b",
        "bytes": 4096,
        "segments": 4,
        "reduced": 1,
        "gathered": False,
        "contributed": [0],
        "executed": [],
    }
    edge = {"op": 7, "position": 2, "text": "op 7, ALLGATHER step 0 segment 3"}
    ranks = [
        dict(node["status"]["ranks"][0], waits_for={"kind": "contribution", "ranks": [1], "op": 7}),
        node["status"]["ranks"][1],
    ]
    status = dict(node["status"], ranks=ranks)
    return dict(node, ops=[op], sent=edge, received=edge, status=status)


def shown(path: str) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    for piece in pieces(read_record(path)):
        console.print(piece)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_record_has_the_form_that_its_schema_says(node: dict[str, Any]) -> None:
    for part in (node, with_ops(node)):
        jsonschema.validate(json.loads(contents("job1", record(part))), SCHEMA)
    assert [rank["rank"] for rank in node["progress"]] == [0, 1]
    assert node["ops"] == []
    assert node["sent"] is None


def test_a_record_is_shown(
    node: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.flight-1.json"
    path.write_bytes(contents("job1", record(with_ops(node))))
    assert is_flight_record(str(path))
    text = shown(str(path))
    for line in (
        "flight record of job job1",
        "stall: rank 1 has kept rank 0 waiting for 30 s",
        "missing: ranks 2-3 on n1: late",
        "rank 1 keeps 1 rank waiting",
        "ring: received op 7, ALLGATHER step 0 segment 3; sent op 7",
        'stacks of rank 0:\nFile "a.py", line 1',
    ):
        assert line in text
    [op] = [line.split() for line in text.splitlines() if "grad/a" in line]
    assert op[:7] == ["7", "4096", "1/4", "rank", "1", "ranks", "0-1"]
    assert op[-3:] == ["and", "1", "more"]
    assert cli.main(["report", str(path)]) == 0
    assert "flight record of job job1" in capsys.readouterr().out


def test_a_damaged_record_is_refused_in_a_line(
    node: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = contents("job1", record(node))
    other = whole.replace(b"flight_record/1", b"flight_record/9")
    for data in (whole[:-5], whole.replace(b'"reasons"', b'"seasons"'), other):
        path = tmp_path / "r.json"
        path.write_bytes(data)
        assert cli.main(["report", str(path)]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "damaged, or a flight record of another version" in line


def test_records_lie_beside_the_report() -> None:
    assert stem_of("job1", "/a/run.jsonl") == "/a/run"
    assert stem_of("job1", "run") == "run"
    assert stem_of("job1", None) == "hvdft-job1"
    assert stem_of("job1", "/proc/7/fd/3") == "hvdft-job1"


def test_no_record_replaces_another(tmp_path: Path) -> None:
    stem = str(tmp_path / "run")
    assert free_path(stem) == f"{stem}.flight-1.json"
    (tmp_path / "run.flight-1.json").write_text("")
    (tmp_path / "run.flight-2.json").symlink_to("nowhere")
    assert free_path(stem) == f"{stem}.flight-3.json"


def test_records_are_written_one_after_the_other_and_waited_for(
    node: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EventLoop() as loop:
        writer = FlightWriter(loop, "job1", str(tmp_path / "run.jsonl"))
        for _ in range(3):
            writer.write(record(node))
        writer.finish()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"run.flight-{n}.json" for n in (1, 2, 3)]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    lines = sorted(capsys.readouterr().err.splitlines())
    assert lines[0] == (
        f"hvdft: flight record (stall): hvdft report {files[0]} shows it; missing: n1"
    )
    assert len(lines) == 3


def test_a_directory_that_is_gone_is_named(
    node: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EventLoop() as loop:
        writer = FlightWriter(loop, "job1", str(tmp_path / "gone" / "run.jsonl"))
        writer.write(record(node))
        writer.finish()
    [line] = capsys.readouterr().err.splitlines()
    assert "not written (No such file or directory); see that its directory" in line
    assert os.listdir(tmp_path) == []
