"""The checkpoint that a job continues from is known, and kept, by whatever path it is given."""

import os
from pathlib import Path

import pytest

from hvd_ft.agent.checkpoints import name_within


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a checkpoint, another one, and links to them."""
    for name in ("real/one", "other/one"):
        (tmp_path / name).mkdir(parents=True)
    os.symlink("real", tmp_path / "link")
    os.symlink("one", tmp_path / "real" / "latest")
    os.symlink(tmp_path / "other" / "one", tmp_path / "real" / "elsewhere")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("directory", ["real", "link", "other/../real", "{}/link/"])
@pytest.mark.parametrize("path", ["real/one", "link/one", "{}/real/one/", "link/latest"])
def test_it_has_its_name_there_by_every_path(here: Path, directory: str, path: str) -> None:
    assert name_within(directory.format(here), path.format(here)) == "one"


@pytest.mark.parametrize("path", ["other/one", "real", "real/gone", "link/elsewhere"])
def test_what_lies_elsewhere_has_no_name_there(here: Path, path: str) -> None:
    assert name_within("real", path) is None
