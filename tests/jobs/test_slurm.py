"""Jobs under a real Slurm: its allocation is used, agents may die, preemption writes a checkpoint.

`make slurm` runs all of it, with both ways in which Slurm tracks processes; the long ones are left
out of `make test`.
"""

import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, SCRIPTS
from slurm_cluster import Slurm, running_slurm, shell
from test_generations import SUMS

from hvd_ft.system.await_file import await_file

RUN = [sys.executable, "-m", "hvd_ft.cli", "run", "--no-live"]
PREEMPTED = [sys.executable, "-W", "ignore", str(SCRIPTS / "preempted_script.py")]
EXAMPLE = ROOT / "examples" / "slurm" / "train.sbatch"
OPS, MEGABYTE = "60", "1000000"
TRAINS_SECONDS = 300.0
MORE_STEPS, RANKS = 20, 3  # of preempted_script.py
pytestmark = [pytest.mark.timeout(900), pytest.mark.job]


@pytest.fixture(
    scope="module", params=["cgroup", pytest.param("linuxproc", marks=pytest.mark.long)]
)
def slurm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    with running_slurm(folder, request.param) as running:
        yield running


def expect_sums(text: str, ranks: int, incarnations: set[str]) -> None:
    found = re.findall(r"SUMS (\d+) (\d+) (\w+)", text)
    assert sorted(int(rank) for rank, _, _ in found) == list(range(ranks)), text
    assert {incarnation for _, incarnation, _ in found} == incarnations, text
    assert len({digest for _, _, digest in found}) == 1, text


@pytest.mark.shows(later=True)
@pytest.mark.parametrize(
    ("drill", "incarnations", "generations"),
    [
        ("agent=1,op=31", {"0"}, 1),
        pytest.param("mpirun,op=31", {"0"}, 1, marks=pytest.mark.long),
        pytest.param("shim=1,op=31", {"0", "1"}, 0, marks=pytest.mark.long),
        pytest.param("rank=1,op=31", {"0", "1"}, 0, marks=pytest.mark.long),
    ],
)
def test_a_process_dies_and_the_job_goes_on(
    slurm: Slurm, drill: str, incarnations: set[str], generations: int
) -> None:
    job = shell(*RUN, "--inject", drill, *SUMS, OPS, MEGABYTE, "5")
    code, output = slurm.submit(f"exec {job}", "-N2", "-n3")
    text = output.read_text()
    assert code == 0, text
    assert ": 3 ranks on n0:2,n1:1, started by slurm" in text
    assert text.count("; starting generation") == generations, text
    assert "starts its shim itself" not in text
    expect_sums(text, 3, incarnations)


@pytest.mark.long
def test_without_a_step_the_job_runs_too(slurm: Slurm) -> None:
    job = shell(*RUN, *SUMS, OPS, MEGABYTE, "5")
    wrapper = slurm.folder / "bin" / "srun"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(
        '#!/bin/sh\ncase "$*" in *hvdft-shims*) echo refused >&2; exit 1 ;; esac\n'
        'PATH=${PATH#*:} exec srun "$@"\n'
    )
    wrapper.chmod(0o755)
    code, output = slurm.submit(f"export PATH={wrapper.parent}:$PATH\nexec {job}", "-N2", "-n3")
    text = output.read_text()
    assert code == 0, text
    assert "Slurm has not started a step for shims (refused)" in text
    expect_sums(text, 3, {"0"})


class Preempted:
    """The example's job, which runs in the background until it is over for good."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self._slurm, self._folder = slurm, folder
        self._done: list[tuple[int, Path]] = []
        script = f"set -- {shell(*PREEMPTED, str(folder))}\n. {EXAMPLE}"
        flags = ["-N2", f"-n{RANKS}", "--exclusive", "--requeue", "--open-mode=append"]
        flags += [f"--export=ALL,CHECKPOINTS={folder}/c,PATH={os.path.dirname(sys.executable)}:"]
        flags[-1] += os.environ["PATH"]
        self._thread = threading.Thread(
            target=lambda: self._done.append(slurm.submit(script, *flags))
        )
        self._thread.start()
        assert await_file(folder / "trains", TRAINS_SECONDS)

    @property
    def number(self) -> str:
        """Slurm's id of the job."""
        return self._slurm.on("n0", "squeue", "--noheader", "--format=%A").out.split()[0]

    def expect_one_requeue(self) -> None:
        """The job is begun again, exactly where it was, and ends well."""
        while "PENDING" not in self._slurm.on("n0", "squeue", "--noheader", "--format=%T").out:
            assert self._thread.is_alive()
        # Slurm would wait for two minutes.
        assert self._slurm.on("n0", "scontrol", "update", f"job={self.number}", "starttime=now")
        self._thread.join()
        code, output = self._done[0]
        text = output.read_text()
        assert code == 0, text
        assert text.count("preempted: the checkpoint is written") == 1, text
        assert "is restarting" not in text
        found = re.findall(r"RESULT (\d) (\d+) (\d+) (\d+)", text)
        assert sorted(rank for rank, *_ in found) == [str(rank) for rank in range(RANKS)], text
        for _, begun, ended, total in found:
            assert int(begun) >= 5
            assert int(ended) == int(begun) + MORE_STEPS
            steps = int(ended) * (int(ended) + 1) // 2
            assert int(total) == steps * sum(range(RANKS + 1)), text


def test_a_job_that_is_preempted_goes_on_later(slurm: Slurm, tmp_path: Path) -> None:
    job = Preempted(slurm, tmp_path)
    code, output = slurm.submit("echo urgent", "-N3", "-n3", "--exclusive", "-p", "urgent")
    assert (code, output.read_text()) == (0, "urgent\n")
    job.expect_one_requeue()


@pytest.mark.long
@pytest.mark.parametrize("flags", [["--batch"], []], ids=["as by --signal=B:TERM", "to all steps"])
def test_a_job_that_is_told_to_end_goes_on_later(
    slurm: Slurm, tmp_path: Path, flags: list[str]
) -> None:
    job = Preempted(slurm, tmp_path)
    assert slurm.on("n0", "scancel", "--signal=TERM", *flags, job.number).code == 0
    job.expect_one_requeue()
