"""mpi4py in a worker: rank and size of the job; an error where MPI would be wrong in silence."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hvd_ft import worker
from hvd_ft.job.placement import Nodes
from hvd_ft.job.worker_environment import worker_environment
from hvd_ft.mpi.environment import mpi_environment, mpiexec_command

pytest.importorskip("mpi4py")


def environment(**more: str) -> dict[str, str]:
    """The environment of rank 1 of 3."""
    return worker_environment({**os.environ, **more}, 1, Nodes((0, 2, 3)), "j", "/d")


def run(script: str, *flags: str, env: dict[str, str] | None = None) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(script)],
        env=env or environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("first", ["", "import mpi4py; mpi4py.rc.initialize = False; "])
def test_rank_and_size_are_the_jobs(first: str) -> None:
    ask = "c = MPI.COMM_WORLD; print(c.rank, c.size, c.Get_rank(), c.Get_size())"
    assert run(f"{first}from mpi4py import MPI; {ask}") == ("1 3 1 3\n", "")
    assert run(f"{first}import mpi4py.MPI as MPI; {ask}") == ("1 3 1 3\n", "")


@pytest.mark.parametrize(
    ("use", "named"),
    [
        ("MPI.COMM_WORLD.bcast(1)", "MPI.COMM_WORLD.bcast"),
        ("MPI.COMM_WORLD.Allreduce", "MPI.COMM_WORLD.Allreduce"),
        ("MPI.COMM_SELF", "MPI.COMM_SELF"),
        ("MPI.Comm().Split(0)", "MPI.COMM_WORLD.Split"),
        ("MPI.SUM", "MPI.SUM"),
        ("MPI.Init()", "MPI.Init"),
    ],
)
def test_everything_else_is_refused_by_name(use: str, named: str) -> None:
    out, err = run(f"from mpi4py import MPI\n{use}\nprint('went on')")
    assert out == ""
    line = err.splitlines()[-1]
    assert line.startswith(f"RuntimeError: mpi4py's {named} cannot be used in a worker of hvd_ft")
    assert "use hvd (hvd_ft.tensorflow or hvd_ft.torch) for collectives" in line
    assert "and hvd_ft.p2p for messages" in line


def test_a_library_that_can_do_without_mpi4py_does_not_take_it_for_absent() -> None:
    """It would go on as the only process."""
    out, err = run(
        """
        try:
            from mpi4py import MPI
            alone = MPI.COMM_WORLD.size == 1
            MPI.COMM_WORLD.barrier()
        except ImportError:
            alone = True
        print(alone)
        """
    )
    assert out == "" and "MPI.COMM_WORLD.barrier cannot be used" in err


def test_where_mpi4py_is_not_installed_it_is_not_found() -> None:
    out, err = run("import mpi4py", "-S")
    assert out == ""
    assert err.endswith("ModuleNotFoundError: No module named 'mpi4py'\n")


def test_both_ways_to_the_guard_know_the_same_launchers() -> None:
    """The guard itself stands for mpi4py, and imports nothing of hvd_ft."""
    folder = Path(worker.__file__).parent
    texts = [(folder / f).read_text() for f in ("mpi4py_guard.py", "mpi_guard/mpi4py/__init__.py")]
    first, second = (re.findall(r"^_LAUNCHED = .*$", text, re.MULTILINE) for text in texts)
    assert len(first) == 1
    assert first == second


def test_an_mpirun_of_the_workers_own_has_the_real_mpi() -> None:
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))"
    env = {**environment(), **mpi_environment()}
    command = [*mpiexec_command(2, env), sys.executable, "-c", program]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    # Hydra may write what two processes print into one line.
    assert "".join(done.stdout.split()) == "22"


def test_the_users_path_stays_and_the_guard_is_there_once() -> None:
    once = environment(PYTHONPATH="/a:/b")["PYTHONPATH"]
    guard, *others = once.split(":")
    assert others == ["/a", "/b"]
    assert guard.endswith("worker/mpi_guard")
    assert environment(PYTHONPATH=once)["PYTHONPATH"] == once, "a job that a worker starts"
    assert environment(PYTHONPATH="")["PYTHONPATH"] == guard


@pytest.mark.parametrize("flag", ["-E", "-I"])
@pytest.mark.parametrize("first", ["", "import mpi4py; mpi4py.rc.initialize = False; "])
def test_python_that_ignores_pythonpath_is_guarded_by_hvd_ft(flag: str, first: str) -> None:
    ask = "c = MPI.COMM_WORLD; print(c.rank, c.size); c.barrier()"
    out, err = run(f"{first}import hvd_ft.p2p; from mpi4py import MPI; {ask}", flag)
    assert out == "1 3\n"
    assert "MPI.COMM_WORLD.barrier cannot be used in a worker of hvd_ft" in err


@pytest.mark.parametrize("launched", [False, True])
def test_mpi_that_was_imported_before_is_told(launched: bool) -> None:
    """But not in a program that the script has started by an mpirun of its own."""
    rank = "import os; os.environ['PMIX_RANK'] = '0'; " if launched else ""
    real = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    out, err = run(f"{real}{rank}import hvd_ft.p2p; print(MPI.SUM is not None)", "-I")
    assert out == "True\n"
    assert ("before hvd_ft, in a Python that ignores PYTHONPATH" in err) != launched


def test_outside_of_a_worker_nothing_is_guarded() -> None:
    out, _ = run("import hvd_ft.p2p, sys; print(sys.path[0])", "-I", env=dict(os.environ))
    assert "mpi_guard" not in out
