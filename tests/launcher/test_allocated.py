"""Where a job runs: what the user says, and what the scheduler has allocated."""

import socket
from pathlib import Path

import pytest

from hvd_ft import cli
from hvd_ft.errors import HvdFtError
from hvd_ft.launcher import resizing
from hvd_ft.launcher.allocated import Place, place_of
from hvd_ft.launcher.job import Job, ResolvedJob, resolve
from hvd_ft.launcher.resizing import Hosts
from hvd_ft.members.hosts import host_list
from hvd_ft.members.resizing_rule import Limits

SLURM = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "n[0-1]",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "I_MPI_HYDRA_BOOTSTRAP": "",
    "PATH": "/none",
}


def give(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def test_outside_of_an_allocation_the_user_says_where() -> None:
    assert place_of(4, None, by_script=False) == Place(4, None)
    assert place_of(4, "n0:4", by_script=False) == Place(4, "n0:4")
    for hosts, by_script in ((None, False), ("n0:4", False), (None, True)):
        with pytest.raises(HvdFtError, match="-np is missing"):
            place_of(None, hosts, by_script=by_script)


def test_an_allocation_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, SLURM)
    why = "Slurm job 17: {} ranks on {}, started by ssh"
    assert place_of(None, None, by_script=False) == Place(
        4, "n0:2,n1:2", "ssh", why.format(4, "n0:2,n1:2")
    )
    assert place_of(3, None, by_script=False).hosts == "n0:2,n1:1"
    with pytest.raises(HvdFtError, match="-np 5, but Slurm has allocated 4"):
        place_of(5, None, by_script=False)


def test_a_job_that_resizes_has_all_allocated_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, {**SLURM, "SLURM_JOB_NODELIST": f"{socket.gethostname()},n1"})
    for size, first in ((2, "{}:2"), (3, "{}:2,n1:1"), (4, "{}:2,n1:2")):
        place = place_of(size, None, by_script=False, resizes=True)
        assert place.hosts == f"{socket.gethostname()}:2,n1:2"
        assert f"{size} ranks on {first.format(socket.gethostname())}, started" in place.why


@pytest.mark.parametrize("flags", [["--min-np", "2"], ["--min-np", "2", "--max-np", "4"]])
def test_min_np_takes_its_hosts_from_the_allocation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: list[str]
) -> None:
    give(monkeypatch, {**SLURM, "SLURM_JOB_NODELIST": "localhost,127.0.0.1"})
    taken: list[tuple[Job, Hosts]] = []

    def run(resolved: ResolvedJob, hosts: Hosts, *shown: object) -> int:
        taken.append((resolved.job, hosts))
        return 0

    monkeypatch.setattr(resizing, "launch_resizing", run)
    command = ["run", "-np", "3", *flags, "--checkpoint-dir", str(tmp_path), "true"]
    assert cli.main(command) == 0
    ((job, hosts),) = taken
    assert (job.size, job.bootstrap) == (3, "ssh")
    assert host_list(hosts.poll(0.0) or ()) == "localhost:2,127.0.0.1:2"
    assert job.limits == Limits(2, 4 if "--max-np" in flags else 3, None)


def test_what_the_user_says_has_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, SLURM)
    assert place_of(2, "n1:2", by_script=False) == Place(2, "n1:2", "ssh")
    assert place_of(2, "n1:1,elsewhere", by_script=False) == Place(2, "n1:1,elsewhere")
    assert place_of(2, "localhost:2", by_script=False) == Place(2, "localhost:2")
    assert place_of(2, None, by_script=True) == Place(2, None)
    give(monkeypatch, {"I_MPI_HYDRA_BOOTSTRAP": "pdsh"})
    assert place_of(None, None, by_script=False).why.endswith("started by pdsh")


def test_an_allocation_of_this_host_alone_needs_no_bootstrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give(monkeypatch, {**SLURM, "SLURM_JOB_NODELIST": socket.gethostname()})
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "3")
    place = place_of(None, None, by_script=False)
    assert place == Place(3, None, why="Slurm job 17: 3 ranks on this host")


def test_an_unreadable_allocation_matters_only_if_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give(monkeypatch, {**SLURM, "SLURM_JOB_NODELIST": "n["})
    assert place_of(2, "n1:2", by_script=False) == Place(2, "n1:2")
    with pytest.raises(HvdFtError, match="cannot be read"):
        place_of(2, None, by_script=False)


def test_the_bootstrap_gives_way_to_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("I_MPI_HYDRA_BOOTSTRAP", raising=False)
    monkeypatch.setenv("I_MPI_HYDRA_HOST_FILE", "/etc/mpi/hostfile")
    several = Job(2, ["true"], machine_file="machines", bootstrap="slurm")
    environment = resolve(several).environment
    assert environment["I_MPI_HYDRA_BOOTSTRAP"] == "slurm"
    assert "I_MPI_HYDRA_HOST_FILE" not in environment
    assert (
        resolve(Job(2, ["true"], bootstrap="slurm")).environment["I_MPI_HYDRA_BOOTSTRAP"] == "fork"
    )
    monkeypatch.setenv("I_MPI_HYDRA_BOOTSTRAP", "ssh")
    assert resolve(several).environment["I_MPI_HYDRA_BOOTSTRAP"] == "ssh"
