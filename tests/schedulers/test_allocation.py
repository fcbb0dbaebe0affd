"""What the environments of Slurm, LSF, PBS, SGE and Kubernetes say."""

from collections.abc import Mapping

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import Host, host_list
from hvd_ft.schedulers.allocation import Allocation, read_allocation

# As slurm-wlm 22.05 sets them for sbatch -n 6 on three nodes; n0 had 4 CPUs left.
SLURM = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "n[0-2]",
    "SLURM_TASKS_PER_NODE": "4,1(x2)",
    "SLURM_JOB_CPUS_PER_NODE": "4,1(x2)",
    "SLURM_NTASKS": "6",
}
FILES = {
    "nodes": "a\na\nb\n\na\n",
    "pe": "a.x.org 4 all.q@a UNDEFINED\nb.x.org 2 all.q@b <NULL>\n",
    "hosts": "# by the operator\nj-worker-0.j.ns.svc:2\nj-worker-1.j.ns.svc:2\n",
    "plain": "j-worker-0\nj-worker-1\n",
}


def read(environ: Mapping[str, str], programs: str = "srun blaunch pbsdsh qrsh") -> Allocation:
    def text(name: str) -> str:
        if name not in FILES:
            raise FileNotFoundError(2, "No such file", name)
        return FILES[name]

    found = read_allocation(environ, text, programs.split().__contains__)
    assert found
    return found


@pytest.mark.parametrize(
    ("environ", "scheduler", "job", "hosts", "bootstrap"),
    [
        (SLURM, "Slurm", "17", "n0:4,n1:1,n2:1", "slurm"),
        (
            {"LSB_JOBID": "5", "LSB_MCPU_HOSTS": "a 4 b 2", "LSB_HOSTS": "a a a a b b"},
            *("LSF", "5", "a:4,b:2", "lsf"),
        ),
        ({"LSB_JOBID": "5", "LSB_HOSTS": "a b a"}, "LSF", "5", "a:2,b:1", "lsf"),
        ({"PBS_NODEFILE": "nodes", "PBS_JOBID": "8.x"}, "PBS", "8.x", "a:3,b:1", "pbs"),
        ({"PE_HOSTFILE": "pe", "JOB_ID": "9"}, "SGE", "9", "a.x.org:4,b.x.org:2", "sge"),
        (
            {"I_MPI_HYDRA_HOST_FILE": "hosts"},
            *("the host file", "", "j-worker-0.j.ns.svc:2,j-worker-1.j.ns.svc:2", "ssh"),
        ),
        (
            {"I_MPI_HYDRA_HOST_FILE": "plain", "I_MPI_PERHOST": "4"},
            *("the host file", "", "j-worker-0:4,j-worker-1:4", "ssh"),
        ),
        (
            {"I_MPI_HYDRA_HOST_FILE": "plain", "I_MPI_PERHOST": "allcores"},
            *("the host file", "", "j-worker-0:1,j-worker-1:1", "ssh"),
        ),
    ],
)
def test_an_allocation(
    environ: dict[str, str], scheduler: str, job: str, hosts: str, bootstrap: str
) -> None:
    found = read({"JOB_ID": "an unrelated one", **environ})
    assert (found.scheduler, found.job, found.bootstrap) == (scheduler, job, bootstrap)
    assert host_list(found.hosts) == hosts
    assert found.slots == sum(host.slots for host in found.hosts)


def test_outside_of_an_allocation_there_is_none() -> None:
    def refuse(_: str) -> str:
        raise AssertionError

    assert (
        read_allocation({"JOB_ID": "1", "PBS_JOBID": "2", "SLURM_CONF": "x"}, refuse, bool) is None
    )


def test_a_scheduler_comes_before_a_host_file() -> None:
    both = {**SLURM, "I_MPI_HYDRA_HOST_FILE": "hosts"}
    assert read(both).scheduler == "Slurm"


def test_inside_of_a_step_its_cpus_count() -> None:
    step = {**SLURM, "SLURM_TASKS_PER_NODE": "1", "SLURM_JOB_CPUS_PER_NODE": "8(x2),3"}
    assert host_list(read(step).hosts) == "n0:8,n1:8,n2:3"
    assert host_list(read({**step, "SLURM_CPUS_PER_TASK": "4"}).hosts) == "n0:2,n1:2,n2:1"


def test_without_the_schedulers_program_ssh_starts_processes() -> None:
    assert read(SLURM, "pbsdsh").bootstrap == "ssh"
    assert read({"PBS_NODEFILE": "nodes"}, "srun").bootstrap == "ssh"


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "6"}, "start it once, without srun"),
        ({**SLURM, "SLURM_JOB_NODELIST": "n[0-"}, "SLURM_JOB_NODELIST=n[0- ('n[0-' is not a host)"),
        (
            {"SLURM_JOB_NODELIST": "n[0-2]", "SLURM_JOB_CPUS_PER_NODE": "4"},
            "3 hosts, but 1 numbers",
        ),
        ({"SLURM_JOB_NODELIST": "n0", "SLURM_TASKS_PER_NODE": "many"}, "'many' is not a count"),
        ({"PBS_NODEFILE": "gone"}, "No such file"),
        ({"LSB_JOBID": "5"}, "it has no hosts"),
        ({"LSB_JOBID": "5", "LSB_MCPU_HOSTS": "a 4 b"}, "LSF's allocation cannot be read"),
        ({"PE_HOSTFILE": "plain"}, "the line 'j-worker-0' has no number of slots"),
    ],
)
def test_an_allocation_that_cannot_be_read_is_an_error(environ: dict[str, str], part: str) -> None:
    with pytest.raises(HvdFtError) as error:
        read(environ)
    assert part in str(error.value)
    assert str(error.value).endswith(": give -np and -H")


def test_the_first_slots() -> None:
    found = read(SLURM)
    assert found.first(6) == found.hosts
    assert found.first(5) == (Host("n0", 4), Host("n1", 1))
    assert found.first(2) == (Host("n0", 2),)
    with pytest.raises(HvdFtError, match=r"-np 7, but Slurm has allocated 6 slots \(n0:4, n1:1"):
        found.first(7)
