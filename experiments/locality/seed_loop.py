"""Times the seed's own loop (seed_loop.cc) on Intel MPI and on Open MPI, in both placements.

Open MPI is Debian's (openmpi-bin, libopenmpi-dev); --open-mpi names the folder that has it, `/`, or
where the packages were unpacked with dpkg -x. Needs root, for the cluster made of namespaces.
Example: .venv/bin/python -m experiments.locality.seed_loop --open-mpi /
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from experiments.common import (
    add_output,
    cluster_up,
    count,
    end_with,
    inside,
    output_of,
    write_csv,
)
from experiments.locality.run import HERE
from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import machine_file, parse_placement

PLACEMENTS = ("4-2-2", "4-3-1")
SOURCE = HERE / "seed_loop.cc"
# Without the C++ bindings of old, which are a library of their own.
COMPILE = ("g++", "-O2", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", str(SOURCE), "-o")
BYTES, RATE = 8_000_000, "50mbit"
_DEBIAN = "usr/lib/x86_64-linux-gnu"


class IntelMpi:
    """The one that hvd_ft runs on."""

    name = "Intel MPI"

    def __init__(self) -> None:
        self.environ = {"I_MPI_ROOT": sys.prefix, "LD_LIBRARY_PATH": f"{sys.prefix}/lib"}

    def compile(self, program: Path) -> list[str]:
        """Returns the command that compiles the loop."""
        places = ["-I", f"{sys.prefix}/include", "-L", f"{sys.prefix}/lib"]
        return [*COMPILE, str(program), *places, "-lmpi",
                f"-Wl,-rpath,{sys.prefix}/lib"]  # fmt: skip

    def run(self, machines: Path, _slots: str) -> list[str]:
        """Returns the words before the program."""
        return ["mpirun", "-machinefile", str(machines)]


class OpenMpi:
    """Debian's, in a folder of its own, or installed.

    Args:
        root: where its packages are unpacked.
        scratch: takes a script that starts its daemon on other nodes.
    """

    name = "Open MPI"

    def __init__(self, root: Path, scratch: Path) -> None:
        libraries = f"{root / _DEBIAN}:{root / _DEBIAN / 'openmpi/lib'}"
        self._root, self._daemon = root, scratch / "orted"
        self.environ = {"OPAL_PREFIX": str(root / "usr"), "LD_LIBRARY_PATH": libraries,
                        "OPAL_LIBDIR": str(root / _DEBIAN / "openmpi/lib"),
                        "OPAL_PKGLIBDIR": str(root / _DEBIAN / "openmpi/lib/openmpi3"),
                        "OPAL_PKGDATADIR": str(root / "usr/share/openmpi"),
                        "OPAL_DATADIR": str(root / "usr/share"),
                        "OPAL_SYSCONFDIR": str(root / "etc"),
                        "PMIX_MCA_gds": "hash"}  # fmt: skip
        exports = "".join(f"export {name}={value}\n" for name, value in self.environ.items())
        self._daemon.write_text(f'#!/bin/sh\n{exports}exec {root}/usr/bin/orted "$@"\n')
        self._daemon.chmod(0o755)

    def compile(self, program: Path) -> list[str]:
        """Returns the command that compiles the loop."""
        folder = self._root / _DEBIAN
        return [*COMPILE, str(program), f"-I{folder}/openmpi/include",
                f"-L{folder}/openmpi/lib", "-lmpi", f"-Wl,-rpath-link,{folder}"]  # fmt: skip

    def run(self, _machines: Path, slots: str) -> list[str]:
        """Returns the words before the program."""
        words = [f"{self._root}/usr/bin/orterun", "--allow-run-as-root", "--bind-to", "none"]
        for name, value in (
            ("orte_launch_agent", str(self._daemon)),
            ("plm", "rsh"),
            ("pml", "ob1"),
            ("btl", "tcp,vader,self"),
            ("btl_tcp_if_include", "eth0"),
            ("oob_tcp_if_include", "eth0"),
            ("mpi_yield_when_idle", "1"),
        ):
            words += ["--mca", name, value]
        for name in self.environ:
            words += ["-x", name]
        return [*words, "--host", slots]


def measure(
    mpis: Sequence[IntelMpi | OpenMpi], turns: int, repeats: int, scratch: Path
) -> list[dict[str, str | float]]:
    """Returns a row for each allreduce; sides take turns.

    Raises:
        HvdFtError: A job failed, or the loop does not compile.
    """
    programs = {mpi.name: scratch / mpi.name.replace(" ", "-") for mpi in mpis}
    for mpi in mpis:
        if subprocess.run(mpi.compile(programs[mpi.name]), check=False).returncode:
            raise HvdFtError(f"{SOURCE.name} does not compile with {mpi.name}, see above")
    rows: list[dict[str, str | float]] = []
    sides = [(mpi, placement) for mpi in mpis for placement in PLACEMENTS]
    with cluster_up("seed", 3, RATE) as cluster:
        for turn in range(turns):
            for mpi, placement in sides if turn % 2 == 0 else sides[::-1]:
                hosts = parse_placement(placement)
                machines = scratch / "machines"
                machines.write_text(machine_file(hosts))
                enter = ["env", *(f"{k}={v}" for k, v in mpi.environ.items())]
                start = mpi.run(machines, ",".join(map(str, hosts)))
                program = [str(programs[mpi.name]), str(BYTES // 4), str(repeats)]
                words = [*inside(cluster), *enter, *start]
                out = output_of([*words, "-n", "8", *program])
                for line in out.splitlines():
                    if line.startswith("SECONDS "):
                        seconds = float(line.split()[1])
                        rows.append({"mpi": mpi.name, "placement": placement, "turn": turn,
                                     "seconds": seconds})  # fmt: skip
    return rows


def main() -> int:
    """Measures; writes seed_loop.csv and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--open-mpi", type=Path, metavar="DIR", help="leave out: Intel MPI only")
    parser.add_argument("--turns", type=count, default=2)
    parser.add_argument("--repeats", type=count, default=3)
    add_output(parser, HERE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mpis: list[IntelMpi | OpenMpi] = [IntelMpi()]
        if options.open_mpi is not None:
            mpis.append(OpenMpi(options.open_mpi.resolve(), Path(folder)))
        rows = measure(mpis, options.turns, options.repeats, Path(folder))
    write_csv(options.output / "seed_loop.csv", rows)
    print("| MPI | 4-2-2 | 4-3-1 | ratio |\n|---|---|---|---|")
    for mpi in mpis:
        cells, medians = [], []
        for placement in PLACEMENTS:
            own = [float(r["seconds"]) for r in rows if (r["mpi"], r["placement"]) ==
                   (mpi.name, placement)]  # fmt: skip
            medians.append(statistics.median(own))
            cells.append(f"{medians[-1]:.3f} ({min(own):.3f} to {max(own):.3f})")
        print(f"| {mpi.name} | {' | '.join(cells)} | {medians[1] / medians[0]:.2f} |")
    return 0


if __name__ == "__main__":
    os.environ.pop("OPAL_PREFIX", None)
    end_with(main)
