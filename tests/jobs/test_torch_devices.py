"""Tensors on a device whose memory the host cannot read, as that of a GPU: jobs and collectives.

The device is tests/pytorch/fake_device.cc, which computes on the CPU. So nothing here shows how a
GPU orders its own work.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from conftest import ROOT, SCRIPTS, Once, RunHvdft

pytestmark = [pytest.mark.timeout(900), pytest.mark.shows(later=True)]
SOURCE = ROOT / "tests" / "pytorch" / "fake_device.cc"
TORCH = Path(torch.__file__).parent


@pytest.fixture
def library(once: Once) -> str:
    """The compiled device."""
    include = TORCH / "include"
    abi = int(torch.compiled_with_cxx11_abi())

    def compile_it(folder: Path) -> None:
        flags = ["-std=c++17", "-O0", "-fPIC", "-shared", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
        places = [f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}"]
        links = [f"-L{TORCH / 'lib'}", "-ltorch_cpu", "-lc10"]
        target = ["-o", str(folder / "fake_device.so")]
        subprocess.run(["g++", *flags, *places, str(SOURCE), *links, *target], check=True)

    return str(once("fake-device", compile_it) / "fake_device.so")


def run(run_hvdft: RunHvdft, ranks: int, words: Sequence[str], drills: Sequence[str]) -> str:
    inject = [word for drill in drills for word in ("--inject", drill)]
    python = [sys.executable, "-W", "ignore"]
    ended = run_hvdft(["run", "-np", str(ranks), "--no-live", *inject, *python, *words])
    assert ended.code == 0, ended.err
    assert ended.err.count("hvdft: drill: ") == len(drills), ended.err
    return ended.out


def train(
    run_hvdft: RunHvdft, style: str, library: str, drills: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """Returns each rank's digests: of the weights, and of all that it has."""
    words = [str(SCRIPTS / "torch_device_script.py"), style, library]
    out = run(run_hvdft, 2, words, drills)
    found = sorted(re.findall(r"^RESULT (\d) \d (\S+) (\S+)$", out, re.MULTILINE))
    assert len(found) == 2 and len({weights for _, weights, _ in found}) == 1, out
    return found


@pytest.mark.parametrize("style", ["ddp", "loop"])
def test_killed_ranks_end_as_undisturbed_ones(
    run_hvdft: RunHvdft, library: str, style: str
) -> None:
    """And as on the CPU; what a snapshot has is on the device again."""
    drills = ["rank=0,step=3", "rank=1,step=9", "rank=1,incarnation=1,point=replay"]
    whole = train(run_hvdft, style, library)
    assert whole == train(run_hvdft, style, "-")
    assert train(run_hvdft, style, library, drills) == whole


@pytest.mark.parametrize("drills", [(), ("rank=0,op=60", "rank=2,op=150")], ids=["whole", "killed"])
def test_collectives_give_what_gloo_gives(
    run_hvdft: RunHvdft, tmp_path: Path, library: str, drills: Sequence[str]
) -> None:
    """The device is the default one, where PyTorch makes tensors unless it is told another."""
    words = [str(SCRIPTS / "torch_collectives_script.py"), str(tmp_path), library]
    out = run(run_hvdft, 3, words, drills)
    assert "DIFFERS" not in out
    assert out.count("COMPARED") == 3
