"""A real Slurm on the nodes of a cluster: slurmctld on n0, a slurmd on each node, munge's keys.

Debian: apt-get install --no-install-recommends slurm-wlm munge.
"""

import contextlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import HANG_SECONDS, Cluster, Ended, running_cluster

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo", "munged")
NODES = ("n0", "n1", "n2")
CPUS = 4
FREEZER = Path("/sys/fs/cgroup/freezer")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

# Root owns everything; a job may be requeued, and one in `urgent` preempts one in `all`.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=n0
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
FirstJobId={first}
MaxJobId={last}
ReturnToService=2
SlurmdTimeout=60
KillWait=5
MinJobAge=300
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[0-2] CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=all Nodes=n[0-2] Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=urgent Nodes=n[0-2] PriorityTier=10
"""
CGROUPS = """\
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
CgroupPlugin=cgroup/v1
ConstrainCores=no
"""


@dataclass(frozen=True)
class Slurm:
    """A Slurm that is up.

    Attributes:
        cluster: on whose nodes it runs.
        folder: of its files.
    """

    cluster: Cluster
    folder: Path

    def on(self, node: str, *command: str, timeout: float = HANG_SECONDS) -> Ended:
        """Runs a command of Slurm on a node."""
        words = ["env", f"PATH={_PATH}", f"SLURM_CONF={self.folder}/slurm.conf", *command]
        return self.cluster.hvdft("exec", node, *words, timeout=timeout)

    def submit(self, script: str, *flags: str, wait: bool = True) -> tuple[int, Path]:
        """Submits a batch script, and waits for the job's end.

        Args:
            script: lines of bash.
            flags: of sbatch.
            wait: whether to wait.

        Returns: The job's exit code, 0 without waiting, and the file with its output.
        """
        name = uuid.uuid4().hex[:8]
        file, output = self.folder / f"{name}.sh", self.folder / f"{name}.out"
        # The cluster's commands name a bootstrap, as no user's environment does.
        file.write_text(f"#!/bin/bash\nunset I_MPI_HYDRA_BOOTSTRAP\n{script}\n")
        waits = ["--wait"] if wait else []
        ended = self.on("n0", "sbatch", *waits, "-o", str(output), *flags, str(file))
        assert "Submitted batch job" in ended.out, ended
        return ended.code, output


def why_not(proctrack: str) -> str:
    """Returns why there can be no Slurm here; "" if there can be one."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"{', '.join(missing)} not found: install Debian's slurm-wlm and munge"
    if proctrack == "cgroup" and not os.access(FREEZER, os.W_OK):
        return f"{FREEZER} is not there: proctrack/cgroup is tried with control groups v1"
    return ""


@contextlib.contextmanager
def running_slurm(folder: Path, proctrack: str) -> Iterator[Slurm]:
    """A Slurm on three nodes; skips where there can be none.

    Args:
        folder: for its files.
        proctrack: linuxproc or cgroup.
    """
    if why := why_not(proctrack):
        pytest.skip(f"there can be no Slurm here: {why}")
    # Control groups have the names of nodes and jobs: another Slurm may have the same nodes.
    first = random.SystemRandom().randrange(10_000, 60_000_000)
    (folder / "state").mkdir()
    (folder / "cgroup.conf").write_text(CGROUPS)
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            folder=folder, proctrack=proctrack, first=first, last=first + 1000, cpus=CPUS
        )
    )
    with running_cluster() as cluster, _munge(folder):
        slurm = Slurm(cluster, folder)
        assert slurm.on("n0", "slurmctld", "-c").code == 0
        for node in NODES:
            (folder / f"spool-{node}").mkdir()
            ended = slurm.on(node, "slurmd", "-N", node)
            assert ended.code == 0, ended
        try:
            _await_nodes(slurm)
            yield slurm
        finally:
            slurm.on("n0", "scancel", "--full", "--user=root")
            slurm.on("n0", "scontrol", "shutdown")
    _remove_groups(first)


def _await_nodes(slurm: Slurm) -> None:
    """An allocation of all nodes is given once all have registered."""
    ended = slurm.on("n0", "srun", "-N", "3", "-n", "3", "--input=none", "hostname", timeout=120)
    assert sorted(ended.out.split()) == list(NODES), ended


@contextlib.contextmanager
def _munge(folder: Path) -> Iterator[None]:
    key, pid = folder / "munge.key", folder / "munged.pid"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    files = {"key-file": key, "pid-file": pid, "socket": folder / "munge.socket"}
    files |= {"log-file": folder / "munged.log", "seed-file": folder / "munge.seed"}
    flags = [f"--{name}={path}" for name, path in files.items()]
    munged = shutil.which("munged", path=_PATH)
    assert munged
    # It answers once this has returned. Only this test run can enter its folder's parent.
    subprocess.run([munged, "--force", "--num-threads=1", *flags], check=True)
    try:
        yield
    finally:
        os.kill(int(pid.read_text()), signal.SIGTERM)


def _remove_groups(first: int) -> None:
    """Removes the control groups that killed daemons have left; they are empty."""
    for group in sorted(FREEZER.glob("slurm_n*/uid_*/job_*"), reverse=True):
        number = group.name.removeprefix("job_")
        if number.isdecimal() and first <= int(number) <= first + 1000:
            for inner in [*sorted(group.rglob("*/"), reverse=True), group]:
                with contextlib.suppress(OSError):
                    inner.rmdir()


def shell(*words: str) -> str:
    """Returns a command line for a script."""
    return shlex.join(words)
