"""Which processes above an agent are its launcher."""

import pytest

from hvd_ft.mpi.launcher_processes import is_launcher


@pytest.mark.parametrize(
    ("argv", "answer"),
    [
        (["/bin/sh", "/opt/bin/mpirun", "-np", "2"], True),
        (["/usr/bin/python3", "/usr/bin/horovodrun", "-np", "2"], True),
        (["/bin/sh", "-c", "mpirun -np 2 hvdft agent python x.py"], True),
        (["/bin/sh", "-c", "echo mpirun"], False),
        (["bash", "run_mpirun.sh"], False),
        (["mpiexec.hydra", "-n", "2"], True),
        (["/opt/bin/hydra_pmi_proxy", "--usize", "-1"], True),
        ([], False),
    ],
)
def test_what_is_a_launcher(argv: list[str], answer: bool) -> None:
    assert is_launcher(argv) == answer
