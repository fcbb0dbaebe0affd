"""Builds the core's tests, which are programs in C++: what has changed of them."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "tests"
CMAKE = Path(sys.executable).with_name("cmake")  # of requirements.txt
FLAGS = "-O1 -Werror"


def build_programs(target: str = "core_tests") -> Path:
    """Builds a program, or all of them; returns their folder.

    Raises:
        RuntimeError: it cannot be built; with what the compiler has said.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # for all of pytest's processes
        for step in (
            [
                *("-S", ROOT, "-B", BUILD, "-DHVDFT_TESTS=ON", "-DCMAKE_BUILD_TYPE=None"),
                f"-DHVDFT_MPI_INCLUDE={sys.prefix}/include",
                f"-DCMAKE_CXX_FLAGS={FLAGS}",
            ],
            ["--build", BUILD, "--target", target, "--parallel", str(os.cpu_count())],
        ):
            done = subprocess.run(
                [CMAKE, *step],
                check=False,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            if done.returncode:
                raise RuntimeError(done.stdout)
    return BUILD
