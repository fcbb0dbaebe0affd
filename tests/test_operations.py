"""The ft backend against Horovod's MPI backend: the same inputs, the same results."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import Cluster, RunHvdft

from hvd_ft.environment import mpi_environment

SCRIPT = str(Path(__file__).with_name("operations_script.py"))
RANKS = 3


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, np.ndarray]]]:
    """Filled by the first test: per backend, per rank, what came out."""
    return {}


def test_both_backends_run(
    run_hvdft: RunHvdft, tmp_path: Path, results: dict[str, list[dict[str, np.ndarray]]]
) -> None:
    for backend in ("mpi", "ft"):
        out = tmp_path / backend
        out.mkdir()
        script = [sys.executable, SCRIPT, str(out)]
        if backend == "ft":
            ended = run_hvdft(["run", "-np", str(RANKS), *script], timeout=120)
        else:
            environment = {**os.environ, **mpi_environment()}
            arguments = ["-n", str(RANKS), *script]
            ended = run_hvdft(arguments, timeout=120, env=environment, program=["mpirun"])
        assert ended.code == 0, ended.err
        results[backend] = [dict(np.load(out / f"rank-{r}.npz")) for r in range(RANKS)]


def test_a_job_on_two_nodes_runs(
    cluster: Cluster, tmp_path: Path, results: dict[str, list[dict[str, np.ndarray]]]
) -> None:
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", str(RANKS), "-H", "n0:2,n1:1"]
    ended = cluster.hvdft("run", "--", *hvdft, sys.executable, SCRIPT, str(tmp_path), timeout=180)
    assert ended.code == 0, ended.err
    results["nodes"] = [dict(np.load(tmp_path / f"rank-{r}.npz")) for r in range(RANKS)]


def compared(name: str, mpi: np.ndarray, ft: np.ndarray) -> str | None:
    """Returns what differs."""
    if mpi.dtype != ft.dtype or mpi.shape != ft.shape:
        return f"{name}: mpi {mpi.dtype} {mpi.shape}, ft {ft.dtype} {ft.shape}"
    same: Callable[[np.ndarray, np.ndarray], bool] = np.array_equal
    if "close: " in name:
        same = lambda a, b: np.allclose(a, b, rtol=1e-5, atol=1e-6)  # noqa: E731
    return None if same(mpi, ft) else f"{name}: mpi {mpi}, ft {ft}"


@pytest.mark.parametrize("run", ["ft", "nodes"])
def test_results_are_those_of_mpi(
    run: str, results: dict[str, list[dict[str, np.ndarray]]]
) -> None:
    if run not in results:
        pytest.skip("there is no such run: it failed, or there can be no cluster")
    differences = []
    for mpi, ft in zip(results["mpi"], results[run], strict=True):
        assert len(mpi) > 300
        differences += [f"only one backend has {name}" for name in mpi.keys() ^ ft.keys()]
        for name in mpi.keys() & ft.keys():
            difference = compared(name, mpi[name], ft[name])
            differences += [difference] if difference else []
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("run", ["ft", "nodes"])
def test_all_ranks_have_the_same_bits(
    run: str, results: dict[str, list[dict[str, np.ndarray]]]
) -> None:
    if run not in results:
        pytest.skip("there is no such run: it failed, or there can be no cluster")
    first, *others = results[run]
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
