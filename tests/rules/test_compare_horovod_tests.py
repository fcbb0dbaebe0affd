"""The comparison of Horovod's tests on its MPI backend and on ft, with a checkout of our own."""

import os
import sys
from pathlib import Path

from conftest import ROOT, RunHvdft

SCRIPT = ROOT / "scripts" / "compare_horovod_tests.py"

TESTS = """\
import os, signal, unittest, pytest

ft = os.environ.get("HOROVOD_CONTROLLER") == "ft"
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
other_is_through = os.environ["OTHER_IS_THROUGH"]
assert int(os.environ["OMPI_COMM_WORLD_SIZE"]) == 2

def test_same(): pass
def test_worse_on_one_rank(): assert not (ft and rank == 1)
def test_better(): assert ft
class Parts(unittest.TestCase):
    def test_part(self):
        with self.subTest("one"): assert not ft
def test_skipped(): pytest.skip("so")
def test_dies():
    if ft and rank == 0:
        signal.alarm(60)  # kills as well, should the other never come there
        open(other_is_through).close()
        os.kill(os.getpid(), signal.SIGKILL)

@pytest.fixture
def tell_when_noted():
    yield
    if ft and rank == 1: open(other_is_through, "w").close()
def test_not_reached(tell_when_noted): pass
"""


def test_what_is_worse_on_ft_is_told(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    folder = tmp_path / "test" / "parallel"
    folder.mkdir(parents=True)
    (folder / "test_some.py").write_text(TESTS)
    program = [sys.executable, str(SCRIPT), str(tmp_path), "test_some.py"]
    program += ["--out", str(tmp_path / "out")]
    os.mkfifo(tmp_path / "through")
    environment = {"COLUMNS": "200", "OTHER_IS_THROUGH": str(tmp_path / "through")}
    ended = run_hvdft([], program=program, env=environment)
    assert ended.code == 1, ended
    rows = [line for line in ended.out.splitlines() if line.startswith("│")]
    found = {row.split("│")[1].strip(): row.split("│")[2].strip() for row in rows}
    assert found == {
        "test_some.py::test_worse_on_one_rank": "failed",
        "test_some.py::Parts::test_part": "failed",
        "test_some.py::test_dies": "unfinished",
    }, ended
    assert "on mpi: 5 passed, 1 skipped, 1 failed" in ended.out, ended
    same = run_hvdft(["-k", "same or better or skipped"], program=program, env=environment)
    assert same.code == 0, same


def test_a_folder_that_is_no_checkout(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    ended = run_hvdft([str(tmp_path)], program=[sys.executable, str(SCRIPT)])
    assert ended.code == 2
    assert "has no test/parallel/test_tensorflow.py" in ended.err
