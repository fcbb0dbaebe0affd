"""What pip makes of hvd_ft in an environment that has nothing yet.

The tests marked `install` install all of it and take minutes: `make wheel`. The others look at the
wheel and run it in the environment at hand.
"""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, SCRIPTS, Ended, Once, RunHvdft, running_cluster

SUMS = str(SCRIPTS / "sums_script.py")
CHECKS = [
    "host",
    "network",
    "Intel MPI",
    "framework",
    "Horovod",
    "libhvd_ft.so",
    "libhvdft_mpi.so",
]
CHECKS += ["combination", "libhvdft_mpi.so loads", "Horovod loads", "two ranks"]


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Runs a command that must succeed; returns what it prints."""
    done = subprocess.run(
        [*map(str, command)],
        check=False,
        capture_output=True,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copy_tree(folder: Path) -> Path:
    """Copies what a package is made of, without what has been built."""
    tree = folder / "tree"
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("hvd_ft", "patches"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    files = "setup.py pyproject.toml MANIFEST.in CMakeLists.txt README.md LICENSE NOTICE"
    for name in files.split():
        shutil.copy(ROOT / name, tree)
    return tree


IMPATIENT = """\
import sys
from hvd_ft import cli
from hvd_ft.tools.check import self_check, two_ranks
two_ranks.LIMIT_SECONDS = 1
self_check.load_horovod = str
sys.exit(cli.main())
"""


@pytest.fixture
def wheel(once: Once) -> Path:
    """The wheel, made of an sdist, unpacked."""
    return once("wheel", make_wheel) / "unpacked"


def make_wheel(folder: Path) -> None:
    tree = copy_tree(folder)
    run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", folder, cwd=tree)
    [sdist] = folder.glob("*.tar.gz")
    venv.create(folder / "empty", with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "empty", "--disable-pip-version-check"]
    run(*pip, "wheel", "-q", "--no-deps", "--wheel-dir", folder, sdist, cwd=folder)
    [made] = folder.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(folder / "unpacked")


def files(folder: Path, *kinds: str) -> set[str]:
    """Returns the files of these kinds, as paths below the folder."""
    return {str(path.relative_to(folder)) for kind in kinds for path in folder.rglob(f"*{kind}")}


def test_the_wheel_has_everything_that_is_needed_at_run_time(wheel: Path) -> None:
    package = wheel / "hvd_ft"
    assert files(package, ".so") == {
        "libhvd_ft.so",
        "libhvdft_mpi.so",
        "libhvdft_listen.so",
    }
    assert files(package, ".py") - {"patches/__init__.py"} == files(ROOT / "hvd_ft", ".py")
    assert files(package / "patches", ".patch") == files(ROOT / "patches", ".patch")
    for_horovod = "csrc/horovod"
    assert files(package / for_horovod, ".cc", ".h") == files(
        ROOT / "hvd_ft" / for_horovod, ".cc", ".h"
    )
    assert (package / "csrc/include/hvd_ft.h").read_bytes() == (
        ROOT / "hvd_ft/csrc/include/hvd_ft.h"
    ).read_bytes()


def check(run_hvdft: RunHvdft, package: Path) -> Ended:
    """Runs `hvdft check` of a package in another folder."""
    path = os.pathsep.join([str(package), os.environ["PYTHONPATH"]])
    # Not the package of the current folder.
    return run_hvdft(["check"], env={"PYTHONPATH": path, "PYTHONSAFEPATH": "1"})


def test_check_finds_everything_there(run_hvdft: RunHvdft, wheel: Path) -> None:
    ended = check(run_hvdft, wheel)
    assert (ended.code, ended.err) == (0, "")
    notes = ("note:", " ")  # what this machine is like
    *found, verdict = (line for line in ended.out.splitlines() if not line.startswith(notes))
    assert [line.split(":")[0] for line in found] == CHECKS
    assert f"libhvdft_mpi.so: {wheel}/hvd_ft/libhvdft_mpi.so" in found
    assert found[-1].startswith("two ranks: an allreduce over Intel(R) MPI Library ")
    assert "libfabric" in found[-1]
    assert verdict == "everything is there"


@pytest.mark.parametrize(("kept", "reason"), [(16, "file too short"), (4096, "SIGBUS")])
def test_check_names_a_library_that_does_not_load(
    run_hvdft: RunHvdft, wheel: Path, tmp_path: Path, kept: int, reason: str
) -> None:
    shutil.copytree(wheel, tmp_path / "broken")
    library = tmp_path / "broken" / "hvd_ft" / "libhvdft_mpi.so"
    library.write_bytes(library.read_bytes()[:kept])
    ended = check(run_hvdft, tmp_path / "broken")
    assert ended.code == 2
    [line] = ended.err.splitlines()
    assert f"{library} cannot be loaded (" in line
    assert f"{reason}); install" in line
    assert line.count("install hvd_ft again: pip install . (in a checkout: make core)") == 1
    assert "two ranks" not in ended.out
    assert "everything is there" not in ended.out


def test_check_says_why_two_ranks_fail(run_hvdft: RunHvdft) -> None:
    ended = run_hvdft(["check"], env={"HOROVOD_FT_ARENA_BYTES": "1"})
    assert ended.code == 2
    [line] = ended.err.splitlines()
    why = "hvdft: two ranks could not do an allreduce: HOROVOD_FT_ARENA_BYTES='1' is not allowed"
    assert line.startswith(why)


def test_check_does_not_wait_for_ever(run_hvdft: RunHvdft) -> None:
    ended = run_hvdft(["check"], program=[sys.executable, "-c", IMPATIENT])
    assert ended.code == 2
    assert "hvdft: two ranks have not done an allreduce within 1 s; see" in ended.err


# ------------------------------------------------------------------ a fresh environment


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin of a fresh environment, in which the README's commands have been given.

    The checkout's cache of built Horovods is used, where `make setup` has left one that fits.
    """
    folder = tmp_path_factory.mktemp("installed")
    tree = copy_tree(folder)
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    binaries = folder / "venv" / "bin"
    run(binaries / "pip", "install", "-q", f"{tree}[tensorflow]", cwd=folder, env=environment)
    (folder / "cache" / "hvd_ft").mkdir(parents=True)
    (ROOT / ".cache" / "horovod").mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "hvd_ft" / "horovod").symlink_to(ROOT / ".cache" / "horovod")
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    run(binaries / "hvdft", "build-horovod", cwd=folder, env=environment)
    return binaries


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither the checkout nor what the tests start Python with is in the way."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH")
    yield


@pytest.mark.install
@pytest.mark.timeout(1800)
def test_a_fresh_environment_has_everything(
    installed: Path, elsewhere: None, run_hvdft: RunHvdft
) -> None:
    ended = run_hvdft(["check"], program=[str(installed / "hvdft")])
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == "everything is there"
    assert f"libhvdft_mpi.so: {installed.parent}/lib/" in ended.out


@pytest.mark.install
@pytest.mark.timeout(1800)
def test_a_fresh_environment_runs_a_job_on_two_nodes(installed: Path, elsewhere: None) -> None:
    small_ops = ["20", "65536"]
    with running_cluster("-n", "2") as cluster:
        hvdft = [str(installed / "hvdft"), "run", "-np", "2", "-H", "n0:1,n1:1", "--no-live"]
        ended = cluster.hvdft("run", "--", *hvdft, "python", SUMS, *small_ops)
    assert ended.code == 0, ended.err
    assert "libfabric" in ended.err
    sums = [line.split() for line in ended.out.splitlines() if line.startswith("SUMS")]
    assert sorted(rank for _, rank, *_ in sums) == ["0", "1"]
    assert len({hashed for *_, hashed in sums}) == 1
