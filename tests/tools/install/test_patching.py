"""`hvdft patch`: on a copy of the installed package, which stands first in the path."""

import errno
import os
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from hvd_ft import cli
from hvd_ft.errors import HvdFtError
from hvd_ft.tools.install import patching
from hvd_ft.tools.install.patching import PACKAGE, VERSION, InstalledPackage, State

NAMES = ("estimator", "keras_lib", "early_stopping")
FILES = [f"{PACKAGE}/python/estimator/{name}.py" for name in NAMES]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages with what the patch touches, as released."""
    try:
        found = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{PACKAGE} is not installed")
    folder = tmp_path / "site"
    info = f"{PACKAGE}-{VERSION}.dist-info"
    for name in [*FILES, f"{info}/METADATA", f"{info}/RECORD"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(found.locate_file(name)), folder / name)
    monkeypatch.syspath_prepend(str(folder))
    InstalledPackage().revert()  # the environment's own may be patched
    return folder


def contents(site: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (site / FILES[0]).parent.iterdir()}


def test_it_is_applied_and_taken_back_once_each(site: Path) -> None:
    stock = contents(site)
    assert InstalledPackage().state is State.STOCK
    assert [InstalledPackage().apply(), InstalledPackage().apply()] == [len(FILES), 0]
    assert InstalledPackage().state is State.PATCHED
    patched = contents(site)
    assert b"mkdtemp" in stock["estimator.py"]
    assert b"mkdtemp" not in patched["estimator.py"]
    assert patched.keys() == stock.keys()
    assert [InstalledPackage().revert(), InstalledPackage().revert()] == [len(FILES), 0]
    assert contents(site) == stock


def test_the_patched_files_compile(site: Path) -> None:
    InstalledPackage().apply()
    for name in FILES:
        compile((site / name).read_text(), name, "exec")


def test_a_file_is_replaced_whole_or_not_at_all(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second replacement fails, so the first file is patched and the second as it was."""
    stock, replace, calls = contents(site), os.replace, []

    def fail_later(source: str, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise PermissionError(13, "Permission denied")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(patching.os, "replace", fail_later)
        with pytest.raises(HvdFtError, match="run hvdft patch as the user"):
            InstalledPackage().apply()
    left = contents(site)
    assert left.keys() == stock.keys(), "an unfinished file is left"
    assert sorted(name for name in left if left[name] != stock[name]) == ["estimator.py"]
    assert InstalledPackage().state is State.MIXED
    assert InstalledPackage().apply() == len(FILES) - 1
    assert InstalledPackage().state is State.PATCHED


@pytest.mark.parametrize("action", ["apply", "status", "revert"])
@pytest.mark.parametrize("patched", [False, True])
def test_a_file_that_somebody_has_changed_is_left_alone(
    site: Path, patched: bool, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if patched:
        InstalledPackage().apply()
    with (site / FILES[0]).open("a") as file:
        file.write("# my own line\n")
    before = contents(site)
    assert cli.main(["patch", action]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "estimator.py is neither what" in line
    assert "pip install" in line
    assert contents(site) == before


def test_packages_that_cannot_be_written_are_said(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root, as whom the tests may run, may write everywhere: so the system's answer is made up."""

    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    before = contents(site)
    monkeypatch.setattr(patching.tempfile, "mkstemp", refuse)
    assert [cli.main(["patch", action]) for action in ("status", "apply", "revert")] == [0, 2, 0]
    [line] = capsys.readouterr().err.splitlines()
    assert "estimator.py cannot be replaced (Read-only file system); run hvdft patch as" in line
    assert contents(site) == before


def test_another_release_is_not_touched(site: Path) -> None:
    file = site / f"{PACKAGE}-{VERSION}.dist-info" / "METADATA"
    file.write_text(file.read_text().replace(f"Version: {VERSION}", "Version: 2.14.0"))
    with pytest.raises(HvdFtError, match=r"is 2\.14\.0, and the patch is for 2\.15\.0"):
        InstalledPackage()


def test_a_package_without_hashes_is_not_touched(site: Path) -> None:
    (site / f"{PACKAGE}-{VERSION}.dist-info" / "RECORD").write_text("")
    with pytest.raises(HvdFtError, match="no hash of"):
        InstalledPackage()


def test_an_absent_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(HvdFtError, match="was not found"):
        InstalledPackage()


def test_the_command_line_tells_the_state(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("apply", "apply", "status", "revert"):
        assert cli.main(["patch", action]) == 0
    name = f"{PACKAGE} {VERSION}"
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: patched (3 files changed)",
        f"{name}: patched (nothing to do)",
        f"{name}: patched",
        f"{name}: not patched (3 files changed)",
    ]
