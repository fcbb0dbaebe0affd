"""What a release is made of; that its wheel works is tried by `make release` itself."""

import csv
import hashlib
import importlib
import io
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT

from hvd_ft import __version__


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """scripts/release.py, with another dist/."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = importlib.import_module("release")
    monkeypatch.setattr(module, "DIST", tmp_path / "dist")
    (tmp_path / "dist").mkdir()
    return module


@pytest.fixture
def checkout(release: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A checkout without changes, whose changelog has the day of the release."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__} (2026-11-29)\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    monkeypatch.setattr(release, "ROOT", folder)
    return folder


def test_a_release_is_of_a_commit_whose_changelog_has_its_day(
    release: ModuleType, checkout: Path
) -> None:
    release.check_tree()
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("2026-11-29", "in preparation"))
    with pytest.raises(SystemExit, match="not committed"):
        release.check_tree()
    subprocess.run(["git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@b.c",
                    "commit", "-qam", "two"], check=True)  # fmt: skip
    with pytest.raises(SystemExit, match=r"no heading '## .* \(YYYY-MM-DD\)'"):
        release.check_tree()


def test_checksums_are_those_that_sha256sum_checks(release: ModuleType) -> None:
    file = release.DIST / "a.whl"
    file.write_bytes(b"wheel")
    sums = release.write_sums([file])
    assert sums.read_text() == f"{hashlib.sha256(b'wheel').hexdigest()}  a.whl\n"


def test_licences_of_all_that_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    importlib.import_module("licences").main()
    found = {row["package"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert found["hvd_ft"]["licence"] == "Apache-2.0"
    for package in ("numpy", "mpi4py", "impi-rt", "rich", "aiohttp"):
        assert found[package]["version"]
        assert found[package]["licence"]
    assert not {"pytest", "hypothesis", "ruff"} & set(found)  # only what is needed at run time
