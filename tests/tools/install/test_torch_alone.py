"""hvd_ft in an environment that has PyTorch and no TensorFlow; `make wheel TORCH=1`.

It installs PyTorch and builds Horovod for it, which takes some ten minutes the first time.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conftest import ROOT, SCRIPTS, RunHvdft, running_cluster
from test_wheel import copy_tree, elsewhere, run  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.install, pytest.mark.timeout(3600)]
STATE = str(SCRIPTS / "torch_state_script.py")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The bin of a fresh environment; built Horovods are those of the checkout, if one fits."""
    folder = tmp_path_factory.mktemp("torch_alone")
    run("python3", "-m", "venv", folder / "venv", cwd=folder)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    binaries = folder / "venv" / "bin"
    pip = [binaries / "pip", "install", "-q"]
    run(*pip, "-r", ROOT / "requirements-torch.txt", cwd=folder, env=environment)
    run(*pip, f"{copy_tree(folder)}[torch]", cwd=folder, env=environment)
    (folder / "cache" / "hvd_ft").mkdir(parents=True)
    (ROOT / ".cache" / "horovod").mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "hvd_ft" / "horovod").symlink_to(ROOT / ".cache" / "horovod")
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    run(binaries / "hvdft", "build-horovod", cwd=folder, env=environment)
    assert "tensorflow" not in run(binaries / "pip", "list", cwd=folder, env=environment)
    yield binaries


def test_check_finds_pytorch_and_everything_else(
    installed: Path,
    elsewhere: None,  # noqa: F811
    run_hvdft: RunHvdft,
) -> None:
    ended = run_hvdft(["check"], program=[str(installed / "hvdft")])
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == "everything is there"
    assert re.search(r"^framework: PyTorch \S+$", ended.out, re.MULTILINE)
    assert "Horovod: 0.28.1 for PyTorch\n" in ended.out


def test_a_job_survives_kills(
    installed: Path,
    elsewhere: None,  # noqa: F811
    run_hvdft: RunHvdft,
) -> None:
    def weights(*drills: str) -> Sequence[tuple[str, str]]:
        inject = [word for drill in drills for word in ("--inject", drill)]
        job = ["run", "-np", "2", *inject, str(installed / "python"), STATE, "plain"]
        ended = run_hvdft(job, program=[str(installed / "hvdft")])
        assert ended.code == 0, ended.err
        assert ended.err.count("hvdft: drill: ") == len(drills), ended.err
        return sorted(re.findall(r"^RESULT (\d) \d (\S+ \S+)$", ended.out, re.MULTILINE))

    whole = weights()
    assert len(whole) == 2
    assert weights("rank=0,step=3", "rank=1,step=7") == whole


@pytest.mark.parametrize("what", ["allreduce", "training"])
def test_it_is_measured_against_mpi_and_gloo(
    installed: Path,
    elsewhere: None,  # noqa: F811
    run_hvdft: RunHvdft,
    what: str,
) -> None:
    short = {
        "allreduce": ["--repeats", "1", "--min-bytes", "64K", "--max-bytes", "64K"],
        "training": ["--rounds", "1", "--models", "digits"],
    }
    flags = ["bench", what, "-np", "2", *short[what]]
    ended = run_hvdft(flags, program=[str(installed / "hvdft")])
    assert ended.code == 0, ended.err
    assert all(backend in ended.out for backend in ("ft", "mpi", "gloo")), ended.out


def test_it_runs_on_two_nodes(installed: Path, elsewhere: None) -> None:  # noqa: F811
    with running_cluster("-n", "2") as cluster:
        hvdft = [str(installed / "hvdft"), "run", "-np", "2", "-H", "n0:1,n1:1", "--no-live"]
        ended = cluster.hvdft("run", "--", *hvdft, str(installed / "python"), STATE, "plain")
    assert ended.code == 0, ended.err
    digests = re.findall(r"^RESULT \d \d (\S+)", ended.out, re.MULTILINE)
    assert len(digests) == 2
    assert len(set(digests)) == 1
