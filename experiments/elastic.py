"""Horovod Elastic on Gloo, in an environment of its own: how it is built, and how a job is started.

    .venv/bin/python -m experiments.elastic             # builds it into .cache/elastic, minutes
    .venv/bin/python -m experiments.elastic --where     # its Python

The environment has one package, the unpatched Horovod; everything else, TensorFlow too, it takes
from the environment of this process, so that the sides of an experiment differ in Horovod alone.
"""

import argparse
import os
import shutil
import sys
import sysconfig
import venv
from pathlib import Path

from experiments.common import ROOT, end_with, run_to_end
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.frameworks import TENSORFLOW, require
from hvd_ft.installed.horovod_source import HOROVOD_VERSION

HOME = ROOT / ".cache" / "elastic"
PYTHON = HOME / "bin" / "python"
_BUILD = {
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
}


def host_names() -> list[str]:
    """Returns 27 names of this host.

    Elastic gives a host up when one of its processes dies, so each rank is on a host of its own,
    and what is left are the hosts on which ranks are started again. Each name is another way to
    write 127.0.0.1, which Horovod finds to be this host: no ssh is needed.
    """
    return [
        f"{first}.{middle}{last}"
        for first in ("127", "0x7f", "0177")
        for middle in ("", "0.", "0.0.")
        for last in ("1", "0x1", "01")
    ]


def discovery_script(folder: Path) -> Path:
    """Writes the script that tells Elastic its hosts, which are always the same."""
    path = folder / "discover_hosts.sh"
    path.write_text("#!/bin/sh\n" + "".join(f"echo {name}:1\n" for name in host_names()))
    path.chmod(0o700)
    return path


def command(ranks: int, folder: Path) -> list[str]:
    """Returns the words before those of an Elastic job's script.

    Args:
        ranks: At any time; there are spare hosts for 27 less `ranks` failures.
        folder: Takes the discovery script.
    """
    size = ["-np", str(ranks), "--min-np", str(ranks), "--max-np", str(ranks)]
    hosts = ["--host-discovery-script", str(discovery_script(folder))]
    launch = [str(PYTHON), "-m", "horovod.runner.launch", *size, *hosts]
    return [*launch, "--network-interfaces", "lo", str(PYTHON)]


def environment(timeout_seconds: int) -> dict[str, str]:
    """Returns an Elastic job's environment.

    Args:
        timeout_seconds: Of Gloo, of whatever it waits for; Horovod's own choice is 30.
    """
    return {**os.environ, "HOROVOD_GLOO_TIMEOUT_SECONDS": str(timeout_seconds)}


def is_built() -> bool:
    """Returns whether the environment is there."""
    return (HOME / "built").exists()


def build() -> None:
    """Builds the environment, if it is not there.

    Raises:
        HvdFtError: Something is absent, or Horovod does not compile; the log has the reason.
    """
    if is_built():
        return
    require(TENSORFLOW)
    shutil.rmtree(HOME, ignore_errors=True)
    venv.create(HOME, with_pip=False)
    site = HOME / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    # CMake 4 refuses the CMakeLists.txt of Horovod and Gloo; that of requirements.txt is older.
    tools = {"PATH": os.pathsep.join([f"{sys.prefix}/bin", os.environ["PATH"]])}
    # Not from pip's cache, where a build with other settings has the same name.
    wheel = ["wheel", "--no-cache-dir", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
    _pip(*wheel, "--wheel-dir", str(HOME / "wheel"), f"horovod=={HOROVOD_VERSION}", **tools)
    [built] = (HOME / "wheel").glob("horovod-*.whl")
    _pip("install", "--no-deps", "--no-index", "--target", str(site), str(built))
    (site / "the_others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (HOME / "built").touch()


def _pip(*words: str, **more: str) -> None:
    log = HOME / "build.log"
    with log.open("ab") as output:
        ended = run_to_end(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
            env={**os.environ, **_BUILD, "MAKEFLAGS": f"-j{os.cpu_count() or 1}", **more},
            stdout=output,
            stderr=output,
        )
    if ended.returncode:
        raise HvdFtError(f"pip {words[0]} failed; its output is in {log}")


def main() -> int:
    """Builds, or says where it is."""
    lines = __doc__.splitlines()
    parser = argparse.ArgumentParser(description=lines[0])
    parser.add_argument("--where", action="store_true", help="print its Python, and build nothing")
    if not parser.parse_args().where:
        build()
    print(PYTHON)
    return 0


if __name__ == "__main__":
    end_with(main)
