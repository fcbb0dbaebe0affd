"""The batch script gives the last nodes of an allocation to `--spare-hosts`; without Slurm."""

import os
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

from hvd_ft import cli

SCRIPT = ROOT / "examples" / "slurm" / "train.sbatch"


def called(folder: Path, **environ: str) -> list[str]:
    """Returns the words with which the batch script calls `hvdft run`."""
    programs = {
        "scontrol": "printf 'n%s\\n' 0 1 2 3 4",
        "hvdft": f'[ "$1" = run ] && printf \'%s\\n\' "$@" >{folder}/called',
    }
    for name, text in programs.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", **environ}
    subprocess.run(["bash", str(SCRIPT), "python", "t.py"], check=True, cwd=folder, env=env)
    return (folder / "called").read_text().splitlines()


@pytest.mark.parametrize(
    ("spares", "expected"),
    [
        ("", []),
        ("0", []),
        ("1", ["-np", "32", "-H", "n0:8,n1:8,n2:8,n3:8", "--spare-hosts", "n4:8"]),
        ("2", ["-np", "24", "-H", "n0:8,n1:8,n2:8", "--spare-hosts", "n3:8,n4:8"]),
    ],
)
def test_the_last_nodes_are_spare_hosts(tmp_path: Path, spares: str, expected: list[str]) -> None:
    words = called(tmp_path, SPARES=spares, SLURM_JOB_NODELIST="n[0-4]", SLURM_NTASKS_PER_NODE="8")
    assert words == ["run", *expected, "--checkpoint-dir", "checkpoints", "--grace", "60",
                     "python", "t.py"]  # fmt: skip
    assert cli.parser().parse_args(words).command == ["python", "t.py"]
