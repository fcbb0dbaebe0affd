"""The ring over MPI, on ranks of one host."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Cluster, RunHvdft

from hvd_ft import ring
from hvd_ft.errors import HvdFtError
from hvd_ft.mpi import environment
from hvd_ft.ring import prepare

SCRIPT = str(Path(__file__).parent / "ring_script.py")


def run(run_hvdft: RunHvdft, ranks: int, mode: str, fabrics: str = "shm"):
    """Runs the script by mpirun, as a user does: nothing but the paths is set for it."""
    env = environment.mpi_environment()
    ours = {k: v for k, v in env.items() if not k.startswith("I_MPI_THREAD")}
    command = [f"{env['I_MPI_ROOT']}/bin/mpirun", "-n", str(ranks), sys.executable, SCRIPT, mode]
    tcp = {"I_MPI_FABRICS": fabrics, "FI_TCP_IFACE": "lo"}
    return run_hvdft([], env={**ours, **tcp}, program=command)


@pytest.mark.shows
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
def test_every_variant_gives_the_bits_of_numpy(run_hvdft: RunHvdft, ranks: int) -> None:
    ended = run(run_hvdft, ranks, "endpoints")
    assert (ended.code, ended.out) == (0, "good\n"), ended.err
    # Each finding is printed once.
    told = [line for line in ended.err.splitlines() if line.startswith("hvdft: ring: Intel")]
    assert len(set(told)) == len(told) and all("shared memory" in line for line in told)
    assert "2 endpoints in use" in ended.err


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.shows), 3, 4])
def test_several_rings_give_the_bits_of_one(run_hvdft: RunHvdft, ranks: int) -> None:
    ended = run(run_hvdft, ranks, "rings")
    assert (ended.code, ended.out) == (0, "good\n"), ended.err
    assert "8 rings with 1 endpoint each in use, MPI has 10 (MPI was started with 10" in ended.err
    assert "3 rings with 2 endpoints each in use, MPI has 10\n" in ended.err


def test_several_rings_over_sockets(run_hvdft: RunHvdft) -> None:
    ended = run(run_hvdft, 3, "rings", fabrics="ofi")
    assert (ended.code, ended.out) == (0, "good\n"), ended.err


def test_over_sockets(run_hvdft: RunHvdft) -> None:
    ended = run(run_hvdft, 3, "endpoints", fabrics="ofi")
    assert (ended.code, ended.out) == (0, "good\n"), ended.err
    assert "libfabric tcp, 2 endpoints in use" in ended.err


@pytest.mark.parametrize("ranks", [2, 3])
def test_two_threads_on_one_endpoint(run_hvdft: RunHvdft, ranks: int) -> None:
    ended = run(run_hvdft, ranks, "threads")
    assert (ended.code, ended.out) == (0, "good\n"), ended.err


def test_without_preparation_there_is_one_endpoint_and_it_is_said(run_hvdft: RunHvdft) -> None:
    ended = run(run_hvdft, 2, "unprepared")
    assert (ended.code, ended.out) == (0, "good\n"), ended.err
    assert ended.err.count("1 endpoint in use (MPI was started without split threads") == 1


@pytest.mark.parametrize("ranks", [4, 5])
def test_a_ring_orders_itself_by_host(run_hvdft: RunHvdft, ranks: int) -> None:
    ended = run(run_hvdft, ranks, "dealt")
    assert (ended.code, ended.out) == (0, "good\n"), ended.err
    told = [line for line in ended.err.splitlines() if "ordered by" in line]
    across = ranks if ranks % 2 == 0 else ranks - 1
    reason = (
        f"in the given order {across} of {ranks} edges of a ring would cross the network, by host "
        "only 2"
    )
    assert told == [
        f"hvdft: ring: ordered by host: {reason}",
        f"hvdft: ring: ordered by rank, as order='ranks' asks: {reason}",
    ]


def test_a_member_that_does_not_come_is_an_error(run_hvdft: RunHvdft) -> None:
    ended = run(run_hvdft, 2, "timeout")
    assert ended.code != 0 and ended.out.startswith("good\n"), ended.err


def test_without_mpi_there_is_one_line() -> None:
    with pytest.raises(HvdFtError, match="MPI is not running"):
        ring.Ring(None)
    with pytest.raises(HvdFtError, match="give 1 or 2"):
        prepare(endpoints=0)
    with pytest.raises(HvdFtError, match="rings=0 is not a number of rings: give 1 to 8"):
        prepare(rings=0)


def test_what_the_user_has_set_stays() -> None:
    command = (
        "import hvd_ft.ring, os; hvd_ft.ring.prepare(); print(os.environ['I_MPI_THREAD_YIELD'])"
    )
    env = {**os.environ, "I_MPI_THREAD_YIELD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", command], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "0\n"


@pytest.mark.shows
def test_on_several_nodes(cluster: Cluster, tmp_path: Path) -> None:
    machines = tmp_path / "machines"
    cluster.hvdft("hosts", "2-2-1", "--machine-file", str(machines))
    command = ["mpirun", "-np", "5", "-machinefile", str(machines), sys.executable, SCRIPT]
    ended = cluster.hvdft("run", "--", *command, "endpoints")
    assert (ended.code, ended.out) == (0, "good\n"), ended.err
    assert "tcp, 2 endpoints in use" in ended.err


def test_on_nodes_that_have_ranks_in_turn(cluster: Cluster) -> None:
    start = [[":"] * bool(rank) + ["-host", f"n{rank % 3}", "-n", "1", sys.executable, SCRIPT,
              "apart"] for rank in range(5)]  # fmt: skip
    ended = cluster.hvdft("run", "--", "mpirun", *itertools.chain(*start))
    assert (ended.code, ended.out) == (0, "good\n"), ended.err
    assert "ordered by host: in the given order 5 of 5 edges" in ended.err
