"""What can go wrong with the patched Horovod's build; each stops it before it compiles."""

import io
import json
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.installed import horovod_source
from hvd_ft.installed.frameworks import FRAMEWORKS, TENSORFLOW, TORCH
from hvd_ft.tools.install import horovod_build
from hvd_ft.tools.install.horovod_build import Progress


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and a Horovod of another build in an environment that fits."""
    monkeypatch.setattr(horovod_build, "_cache_dir", lambda: tmp_path)
    other = horovod_source.Build("other", ("tensorflow",))
    monkeypatch.setattr(horovod_source, "installed_build", lambda: other)
    monkeypatch.setattr(horovod_build, "_bindings", lambda frameworks: (TENSORFLOW,))
    monkeypatch.setattr(horovod_build, "mpi_root", lambda: Path("/"))
    return tmp_path


def put_sdist(cache: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Path:
    """Puts an archive with these files in the place of Horovod's, with its hash."""
    sdist = cache / f"horovod-{horovod_source.HOROVOD_VERSION}.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    digest = sha256(sdist.read_bytes()).hexdigest()
    monkeypatch.setattr(horovod_build, "SDIST_SHA256", digest)
    return sdist


def test_nothing_is_done_when_the_right_horovod_is_there(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = horovod_source.Build(horovod_source.build_key([TENSORFLOW]), ("tensorflow",))
    monkeypatch.setattr(horovod_source, "installed_build", lambda: build)
    assert not horovod_build.build()
    assert list(cache.iterdir()) == []


def test_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(HvdFtError, match=r"g\+\+ was not found.*apt-get install g\+\+"):
        horovod_build.build()


@pytest.mark.job
def test_no_download(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache))
    with pytest.raises(HvdFtError, match=r"pip download failed.*the log is .*build\.log") as raised:
        horovod_build.build()
    assert "\n" not in str(raised.value)


def test_another_archive_than_horovods(cache: Path) -> None:
    sdist = cache / f"horovod-{horovod_source.HOROVOD_VERSION}.tar.gz"
    sdist.write_bytes(b"another")
    with pytest.raises(HvdFtError, match="does not have the pinned SHA-256 hash"):
        horovod_build.build()
    assert not sdist.exists()  # the next try downloads it again


def test_an_archive_that_leaves_its_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_sdist(cache, monkeypatch, "horovod-0.28.1/setup.py", "../outside")
    with pytest.raises(HvdFtError, match=r"'\.\./outside', which is not a plain file inside it"):
        horovod_build.build()
    assert not (cache / "outside").exists()


def test_a_patch_that_does_not_apply(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_sdist(cache, monkeypatch, "horovod-0.28.1/setup.py", "horovod-0.28.1/CMakeLists.txt")
    with pytest.raises(HvdFtError, match=r"0001-build\.patch does not apply to Horovod 0\.28\.1"):
        horovod_build.build()


def test_the_error_of_the_command_line_is_one_line(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert horovod_build.main([]) == 1
    error = capsys.readouterr().err
    assert error.startswith("hvdft: no-such-compiler was not found")
    assert error.count("\n") == 1


def test_our_sources_and_the_marker_are_added(tmp_path: Path) -> None:
    (tmp_path / "horovod" / "common").mkdir(parents=True)
    horovod_build._add_sources(tmp_path, "0123", FRAMEWORKS)
    folder = tmp_path / horovod_source.FT_FOLDER
    names = {path.name for path in folder.iterdir()}
    assert {"ft_controller.cc", "ft_operations.h", "ft_context.h", "hvd_ft.h"} <= names
    marker = json.loads((tmp_path / horovod_source.MARKER).read_text())
    assert (marker["key"], marker["frameworks"]) == ("0123", ["tensorflow", "torch"])


def test_horovod_is_built_for_what_is_asked_for(tmp_path: Path) -> None:
    env = horovod_build._compile_environment(Path("/mpi"), tmp_path, [TORCH])
    assert env["HOROVOD_WITH_PYTORCH"] == env["HOROVOD_WITHOUT_TENSORFLOW"] == "1"
    assert "HOROVOD_WITH_TENSORFLOW" not in env


def test_a_framework_that_is_not_installed_cannot_be_built_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hvd_ft.installed.frameworks.version_of", lambda name: None)
    assert horovod_build.main(["--with", "torch"]) == 1
    assert capsys.readouterr().err.startswith("hvdft: PyTorch is not installed; run: pip install")
    assert horovod_build.main(["--with", "jax"]) == 1
    assert "there is no framework 'jax'" in capsys.readouterr().err


def test_what_is_compiled_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress._QUIET_SECONDS = 0.0
    line = "[ 12%] Building CXX object horovod/tensorflow.dir/__/common/group_table.cc.o\n"
    horovod_build._show_compiled(line, progress)
    horovod_build._show_compiled("Scanning dependencies\n", progress)
    shown = capsys.readouterr().out
    assert "12% group_table.cc\n" in shown
    assert shown.count("\n") == 1
