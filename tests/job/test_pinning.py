"""Each rank has its share of the host's CPUs, in its first process and in any later one."""

import os
import sys

import pytest
from conftest import RunHvdft

from hvd_ft.install.environment import mpi_environment
from hvd_ft.job.pinning import is_wanted, share_of

CPUS = [0, 2, 4, 6, 1, 3, 5]  # neighbours together
SAY = """\
import os, sys
from hvd_ft import native
worker = native.worker()
how = "pinned" if os.sched_getscheduler(0) == os.SCHED_BATCH else "free"
cpus = sorted(os.sched_getaffinity(0))
sys.stdout.write(f"CPUS {worker.rank} {worker.incarnation} {how} {cpus}\\n")
sys.stdout.flush()
if (worker.rank, worker.incarnation) == (1, 0):
    os._exit(1)
worker.orderly_exit()
"""


@pytest.mark.parametrize(
    ("ranks", "shares"),
    [
        (1, [CPUS]),
        (3, [[0, 2], [4, 6], [1, 3, 5]]),
        (7, [[cpu] for cpu in CPUS]),
        (14, [[cpu] for cpu in CPUS for _ in range(2)]),
        (9, [CPUS] * 9),  # some would have to do with half of what others have
    ],
)
def test_the_shares(ranks: int, shares: list[list[int]]) -> None:
    assert [list(share_of(CPUS, index, ranks)) for index in range(ranks)] == shares


def test_the_user_may_say_no(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_wanted({})
    assert not is_wanted({"I_MPI_PIN": "off"})
    assert is_wanted({"I_MPI_PIN": "0", "HOROVOD_FT_PIN": "1"})
    monkeypatch.setenv("HOROVOD_FT_PIN", "0")
    assert mpi_environment(one_host=True)["HOROVOD_FT_PIN"] == "0"


@pytest.mark.parametrize("pin", ["1", "0"])
def test_a_restarted_rank_has_the_same_cpus(run_hvdft: RunHvdft, pin: str) -> None:
    ended = run_hvdft(
        ["run", "-np", "2", "--no-live", sys.executable, "-c", SAY], env={"HOROVOD_FT_PIN": pin}
    )
    assert ended.code == 0, ended.err
    said, how = {}, set()
    for line in ended.out.splitlines():
        _, rank, incarnation, word, cpus = line.split(maxsplit=4)
        said[int(rank), int(incarnation)] = cpus
        how.add(word)
    assert how == {"pinned" if pin == "1" else "free"}
    assert said.keys() == {(0, 0), (1, 0), (1, 1)}
    assert said[1, 0] == said[1, 1]
    everything = str(sorted(os.sched_getaffinity(0)))
    alone = pin == "0" or len(os.sched_getaffinity(0)) == 1
    assert (said[0, 0] == said[1, 0] == everything) == alone
