"""`hvdft checkpoint`, and what `hvdft run --resume` means."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from hvd_ft import cli
from hvd_ft.checkpoint.catalogue import damage, find
from hvd_ft.checkpoint.export import by_name
from hvd_ft.checkpointer.capture import Captured
from hvd_ft.checkpointer.completion import complete
from hvd_ft.checkpointer.cuts import Cut
from hvd_ft.checkpointer.origin import Origin
from hvd_ft.checkpointer.share import Began, write_share
from hvd_ft.errors import HvdFtError
from hvd_ft.job.directory import job_path
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.checkpoints import how_to_go_on, resumes_job
from hvd_ft.launcher.shared_record import SharedRecord
from hvd_ft.members.leadership import Record
from hvd_ft.native.checkpointer import Place
from hvd_ft.worker.shared_contents import Contents, freeze


def make(folder: Path, *steps: int) -> None:
    origin = Origin(folder, "job1", "job1", 5, Place(2, 1, 0, 0, 2), [0])
    folder.mkdir(exist_ok=True)
    for step in steps:
        ranks = {}
        for rank in range(2):
            arrays = {"0:dense/kernel:0": np.full(3, step), "1:own:0": np.array([rank])}
            kept, values = freeze(arrays, {"step": step})
            ranks[rank] = Captured(step, Contents(kept, values.data, frozenset()))
        cut = Cut(0, 2 * step + 1)
        write_share(
            origin, cut, {cut: ranks}, ([], []), range(2), began=Began.now(), await_seconds=0.0
        )
        complete(origin, cut, [0])


def test_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, 3, 12)
    (tmp_path / ".job1-loop0-step00000020.partial").mkdir()
    (tmp_path / "other").mkdir()
    assert cli.main(["checkpoint", "list", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if "job1-loop0-step" in line]
    assert [line.split()[1] for line in lines] == [
        f"job1-loop0-step{step:08d}" for step in (3, 12, 20)
    ]
    assert [line.rstrip(" │").split("│")[-1].strip() for line in lines] == [
        "complete",
        "complete",
        "it is incomplete",
    ]
    assert "other" not in out


def test_list_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["checkpoint", "list", str(tmp_path)]) == 2
    assert "has no complete checkpoint" in capsys.readouterr().err
    assert cli.main(["checkpoint", "list", str(tmp_path / "none")]) == 2
    assert "cannot be read (No such file or directory)" in capsys.readouterr().err


def test_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, 3, 12)
    assert cli.main(["checkpoint", "verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("3 files as they were written") == 2
    path = tmp_path / "job1-loop0-step00000003"
    (path / "loop0-rank1.safetensors").unlink()
    manifest = tmp_path / "job1-loop0-step00000012" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-3])
    assert cli.main(["checkpoint", "verify", str(tmp_path)]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"hvdft: {path}: loop0-rank1.safetensors cannot be read (No such file")
    assert f"{manifest.parent}: its manifest is damaged" in second


def test_any_flipped_bit_and_any_missing_end_is_found(tmp_path: Path) -> None:
    make(tmp_path, 3)
    [checkpoint] = find(tmp_path)
    assert checkpoint.manifest is not None
    files = checkpoint.manifest.files_of(range(2)).items()
    assert len(files) == 3
    for name, _ in files:
        path = checkpoint.path / name
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            assert damage(checkpoint.path, files) == [
                f"{name} is damaged (its hash is not the one in the manifest)"
            ]
            path.write_bytes(whole[:at])
            assert damage(checkpoint.path, files) == [
                f"{name} has {at} bytes instead of {len(whole)}"
            ]
        path.write_bytes(whole)
    assert damage(checkpoint.path, files) == []


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_export(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "c", 3, 12)
    output = tmp_path / f"w.{suffix}"
    command = ["checkpoint", "export", str(tmp_path / "c"), "--output", str(output)]
    assert cli.main([*command, "--rank", "1"]) == 0
    assert "2 variables of job1-loop0-step00000012" in capsys.readouterr().out
    read = np.load(output) if suffix == "npz" else load_file(output)
    assert read["dense/kernel:0"].tolist() == [12] * 3
    assert read["own:0"].tolist() == [1]
    command[2] = str(tmp_path / "c" / "job1-loop0-step00000003")
    assert cli.main(command) == 0
    read = np.load(output) if suffix == "npz" else load_file(output)
    assert read["dense/kernel:0"].tolist() == [3] * 3
    assert cli.main([*command, "--rank", "2"]) == 2
    assert "has no rank 2 in training loop 0" in capsys.readouterr().err


def test_an_export_of_another_kind_or_of_what_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, 3)
    command = ["checkpoint", "export", str(tmp_path), "--output"]
    assert cli.main([*command, str(tmp_path / "w.h5")]) == 2
    assert "let it end in .npz or .safetensors" in capsys.readouterr().err
    path = tmp_path / "job1-loop0-step00000003" / "loop0-rank0.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert cli.main([*command, str(tmp_path / "w.npz")]) == 2
    assert "cannot be exported: loop0-rank0.safetensors has" in capsys.readouterr().err


def test_variables_of_one_name() -> None:
    names = ["0:a", "1:b", "2:a", "3:a", "plain"]
    assert list(by_name({name: np.zeros(1) for name in names})) == ["a", "b", "a#2", "a#3", "plain"]


def test_a_job_or_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arenas, where = str(tmp_path / "arenas"), (str(tmp_path / "arenas"), str(tmp_path))
    with pytest.raises(HvdFtError) as refused:
        resumes_job("abc", *where)
    said = str(refused.value)
    assert said.startswith(
        f"--resume abc: there is no directory {tmp_path}/abc, and no job of that"
    )
    assert "the directory of --checkpoint-dir" in said
    Path("abc").mkdir()
    assert not resumes_job("abc", *where)
    assert not resumes_job("./abc", *where)
    assert not resumes_job(str(tmp_path / "none"), *where)
    Path(job_path(arenas, "abc")).mkdir(parents=True)
    assert resumes_job("abc", *where)
    SharedRecord(str(tmp_path), "far").swap(None, Record("far", 1, "one", 1, 10, True, 0, ""))
    assert resumes_job("far", *where), "its launcher ran on another host"
    with pytest.raises(HvdFtError):
        resumes_job("far", arenas, None)


def test_how_a_job_goes_on(tmp_path: Path) -> None:
    assert how_to_go_on(Settings()) == ""
    settings = Settings(checkpoint_dir=str(tmp_path))
    assert how_to_go_on(settings) == ""
    make(tmp_path, 3, 12)
    assert how_to_go_on(settings) == (
        f"hvdft run --resume {tmp_path} continues from step 12 of training loop 0 "
        "(job1-loop0-step00000012)"
    )
    assert how_to_go_on(Settings(checkpoint_dir=str(tmp_path / "none"))) == ""


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200), ("0.5", 0.5)]
)
def test_times(text: str, seconds: float) -> None:
    flags = ["run", "-np", "1", "--checkpoint-interval", text, "--grace", text, "true"]
    options = cli.parser().parse_args(flags)
    assert (options.checkpoint_interval, options.grace) == (seconds, seconds)


@pytest.mark.parametrize(
    ("flag", "text"),
    [("--checkpoint-interval", "0"), ("--grace", "soon"), ("--checkpoint-keep", "0")],
)
def test_values_that_are_refused(flag: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["run", "-np", "1", flag, text, "true"])
    assert f"{text!r} is not a" in capsys.readouterr().err


def test_a_grace_needs_a_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "-np", "1", "--grace", "5", "true"]) == 2
    assert "there is no directory for the checkpoint" in capsys.readouterr().err
