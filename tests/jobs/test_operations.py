"""The ft backend against Horovod's MPI backend: the same inputs, the same results."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import SCRIPTS, Cluster, RunHvdft

from hvd_ft.mpi.environment import mpi_environment

SCRIPT = str(SCRIPTS / "operations_script.py")
RANKS = 3


Results = list[dict[str, np.ndarray]]  # per rank, by name


@pytest.fixture(scope="module")
def ended_runs() -> dict[str, Results]:
    """What came out of the runs that ended."""
    return {}


@pytest.fixture
def results_of(
    request: pytest.FixtureRequest,
    run_hvdft: RunHvdft,
    tmp_path: Path,
    ended_runs: dict[str, Results],
) -> Callable[[str], Results]:
    """Gives a function `results_of(run)`; a run takes place when it is asked for first."""

    def results_of(run: str) -> Results:
        if run not in ended_runs:
            script = [sys.executable, SCRIPT, str(tmp_path)]
            hvdft = ["run", "-np", str(RANKS)]
            if run == "mpi":
                environment = {**os.environ, **mpi_environment()}
                arguments = ["-n", str(RANKS), *script]
                ended = run_hvdft(arguments, env=environment, program=["mpirun"])
            elif run == "ft":
                ended = run_hvdft([*hvdft, *script])
            else:
                cluster: Cluster = request.getfixturevalue("cluster")
                hvdft = [sys.executable, "-m", "hvd_ft.cli", *hvdft, "-H", "n0:2,n1:1"]
                ended = cluster.hvdft("run", "--", *hvdft, *script)
            assert ended.code == 0, ended.err
            ranks = [dict(np.load(tmp_path / f"rank-{r}.npz")) for r in range(RANKS)]
            for r in range(RANKS):
                (tmp_path / f"rank-{r}.npz").unlink()
            ended_runs[run] = ranks
        return ended_runs[run]

    return results_of


def compared(name: str, mpi: np.ndarray, ft: np.ndarray) -> str | None:
    """Returns what differs."""
    if mpi.dtype != ft.dtype or mpi.shape != ft.shape:
        return f"{name}: mpi {mpi.dtype} {mpi.shape}, ft {ft.dtype} {ft.shape}"
    same: Callable[[np.ndarray, np.ndarray], bool] = np.array_equal
    if "close: " in name:
        same = lambda a, b: np.allclose(a, b, rtol=1e-5, atol=1e-6)  # noqa: E731
    return None if same(mpi, ft) else f"{name}: mpi {mpi}, ft {ft}"


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("run", ["ft", "nodes"])
def test_results_are_those_of_mpi(run: str, results_of: Callable[[str], Results]) -> None:
    differences = []
    for mpi, ft in zip(results_of("mpi"), results_of(run), strict=True):
        assert len(mpi) > 300
        differences += [f"only one backend has {name}" for name in mpi.keys() ^ ft.keys()]
        for name in mpi.keys() & ft.keys():
            difference = compared(name, mpi[name], ft[name])
            differences += [difference] if difference else []
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("run", ["ft", "nodes"])
def test_all_ranks_have_the_same_bits(run: str, results_of: Callable[[str], Results]) -> None:
    first, *others = results_of(run)
    for other in others:
        for name, value in first.items():
            if name.startswith("own: "):
                continue
            assert value.tobytes() == other[name].tobytes(), name


ADASUM = """\
import hvd_ft.tensorflow as hvd
import tensorflow as tf

hvd.init()
try:
    hvd.allreduce(tf.ones([2]), op=hvd.Adasum)
except tf.errors.OpError as error:
    print([line for line in str(error).splitlines() if "ADASUM" in line], flush=True)
hvd.barrier()  # who ends first shuts Horovod down for all
"""


def test_adasum_fails_at_once_on_every_rank(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script = tmp_path / "adasum.py"
    script.write_text(ADASUM)
    ended = run_hvdft(["run", "-np", "2", sys.executable, str(script)])
    assert ended.code == 0, ended.err
    assert ended.out.count("the ft backend has no ADASUM operation; run the script on") == 2
