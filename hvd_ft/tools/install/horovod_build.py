"""Builds Horovod with the ft backend and installs it into the active environment.

The sdist comes from the package index that pip is configured for and must have the pinned hash;
the patches are applied, our C++ sources are added, and the wheel is kept in a cache under its key
(`horovod_source.build_key`). It has bindings for the frameworks that are installed. An interrupted
build can simply be run again.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from hvd_ft.errors import HvdFtError
from hvd_ft.installed import horovod_source
from hvd_ft.installed.frameworks import (
    FRAMEWORKS,
    Framework,
    check_frameworks,
    fitting,
    named,
    require,
)
from hvd_ft.installed.horovod_source import FT_FOLDER, HOROVOD_VERSION, MARKER, SDIST_SHA256
from hvd_ft.mpi.environment import mpi_root
from hvd_ft.system.file_lock import lock_in_time
from hvd_ft.system.say import say
from hvd_ft.tools.install import patching

_COMPILED = re.compile(r"\[ *(\d+%)\] (?:Building|Linking) CXX .*/(.+)$")
_BUILD_LOCK_SECONDS = 1200.0  # a build takes 90 s on 2 cores; allow for slower machines
_TREE = f"horovod-{HOROVOD_VERSION}"


class Progress:
    """Prints a line per stage and, on a terminal, rewrites a last line with the details.

    A stage's line starts with the seconds since the beginning. Where the output is not a
    terminal, a detail is printed when ten seconds have passed without a line.
    """

    _QUIET_SECONDS = 10.0

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last_line = self._start
        self._live = sys.stdout.isatty()

    def stage(self, text: str) -> None:
        """Prints a line that stays."""
        self._print(text, clear="\r\x1b[K" if self._live else "", end="\n")

    def detail(self, text: str) -> None:
        """Shows a detail of the stage."""
        if self._live:
            self._print(text[:60], clear="\r\x1b[K", end="")
        elif time.monotonic() - self._last_line > self._QUIET_SECONDS:
            self._print(text, clear="", end="\n")

    def _print(self, text: str, clear: str, end: str) -> None:
        self._last_line = time.monotonic()
        sys.stdout.write(f"{clear}{self._last_line - self._start:5.0f} s  {text}{end}")
        sys.stdout.flush()


def build(
    force: bool = False,
    progress: Progress | None = None,
    frameworks: Sequence[Framework] | None = None,
) -> bool:
    """Builds and installs the Horovod that this hvd_ft needs, if it is not there already.

    Args:
        force: build and install even when the right Horovod is installed or in the cache.
        progress: shows the stages and what is being compiled; a new `Progress` by default.
        frameworks: that it is to have bindings for; by default those that are installed.

    Returns:
        Whether anything was installed.

    Raises:
        HvdFtError: Intel MPI, a framework or a compiler is absent, the sdist cannot be downloaded
            or has another hash, a patch does not apply, or the compilation fails (the message
            names the log).
    """
    progress = progress or Progress()
    bindings = _bindings(frameworks)
    mpi_root()
    _check_tools()
    key = horovod_source.build_key(bindings)
    names = " and ".join(framework.name for framework in bindings)
    done = f"Horovod {HOROVOD_VERSION} with the ft backend for {names} is installed (key {key})"
    installed = horovod_source.installed_build()
    if not force and installed is not None and installed.key == key:
        progress.stage(done)
        return False

    cache = _cache_dir()
    with _lock(cache):
        log = cache / "build.log"
        log.write_text("")
        wheel = next((cache / key).glob("*.whl"), None)
        if wheel is None or force:
            wheel = _build_wheel(cache, key, bindings, log, progress)
        progress.stage(f"installing {wheel.name}")
        _pip(log, "install", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    progress.stage(done)
    return True


def _bindings(frameworks: Sequence[Framework] | None) -> tuple[Framework, ...]:
    """Returns the frameworks to build for, each of which is installed."""
    if frameworks is None:
        check_frameworks()
        return fitting()
    for framework in frameworks:
        require(framework)
    return tuple(frameworks)


def _build_wheel(
    cache: Path, key: str, frameworks: Sequence[Framework], log: Path, progress: Progress
) -> Path:
    work = cache / "work"
    shutil.rmtree(work, ignore_errors=True)  # left by an interrupted build
    work.mkdir()
    tree = _unpack(_download(cache, log, progress), work)
    progress.stage("patching")
    for patch in horovod_source.patches():
        patching.apply_patch(patch, tree, f"Horovod {HOROVOD_VERSION}")
    _add_sources(tree, key, frameworks)

    progress.stage(f"compiling (about {90 * len(frameworks)} s on 2 cores)")
    out = work / "wheel"
    _pip(
        log,
        *("wheel", "-v", "--no-deps", "--no-cache-dir", "--no-build-isolation"),
        *("--wheel-dir", str(out), str(tree)),
        env=_compile_environment(mpi_root(), tree, frameworks),
        on_line=lambda line: _show_compiled(line, progress),
    )
    shutil.rmtree(cache / key, ignore_errors=True)
    out.rename(cache / key)  # the wheel appears in the cache whole or not at all
    shutil.rmtree(work)
    return next((cache / key).glob("*.whl"))


def _download(cache: Path, log: Path, progress: Progress) -> Path:
    sdist = cache / f"{_TREE}.tar.gz"
    if not sdist.exists():
        progress.stage(f"downloading Horovod {HOROVOD_VERSION}")
        folder = cache / "work" / "sdist"
        source = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation")
        _pip(log, "download", *source, "-d", str(folder), f"horovod=={HOROVOD_VERSION}")
        next(folder.iterdir()).rename(sdist)
    if sha256(sdist.read_bytes()).hexdigest() != SDIST_SHA256:
        sdist.unlink()
        raise HvdFtError(
            f"the downloaded {sdist.name} does not have the pinned SHA-256 hash, so it is not "
            "Horovod's release; check the package index that pip uses and run it again"
        )
    return sdist


def _unpack(sdist: Path, into: Path) -> Path:
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            target = (into / member.name).resolve()
            if not (target.is_relative_to(into.resolve()) and (member.isfile() or member.isdir())):
                raise HvdFtError(
                    f"{sdist.name} holds {member.name!r}, which is not a plain file inside it; "
                    "delete the file and run it again"
                )
        archive.extractall(into)
    return into / _TREE


def _add_sources(tree: Path, key: str, frameworks: Sequence[Framework]) -> None:
    folder = tree / FT_FOLDER
    folder.mkdir()
    for source in horovod_source.sources():
        shutil.copy(source, folder)
    bindings = [framework.key for framework in frameworks]
    marker = {"version": HOROVOD_VERSION, "key": key, "frameworks": bindings}
    (tree / MARKER).write_text(json.dumps(marker) + "\n")


def _compile_environment(
    mpi_root: Path, tree: Path, frameworks: Sequence[Framework]
) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    # Makes source paths in log lines start at the tree, wherever it was built.
    flags = f"{env.get('CXXFLAGS', '')} {shlex.quote(f'-ffile-prefix-map={tree}={_TREE}')}"
    which = {
        f"HOROVOD_{'WITH' if framework in frameworks else 'WITHOUT'}_{framework.build}": "1"
        for framework in FRAMEWORKS
    }
    return (
        env
        | which
        | {
            "HOROVOD_WITH_MPI": "1",
            "HOROVOD_WITHOUT_GLOO": "1",
            "HOROVOD_WITHOUT_MXNET": "1",
            "I_MPI_ROOT": str(mpi_root),
            "PATH": os.pathsep.join([f"{sys.prefix}/bin", f"{mpi_root}/bin", env.get("PATH", "")]),
            "CXXFLAGS": flags,
            "LDFLAGS": f"{env.get('LDFLAGS', '')} -Wl,--strip-debug",  # 47 MB become 3
            "MAKEFLAGS": f"-j{min(os.cpu_count() or 1, 8)}",  # each takes up to 1 GB of memory
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
    )


def _show_compiled(line: str, progress: Progress) -> None:
    if match := _COMPILED.search(line.rstrip()):
        progress.detail(f"{match[1]:>4} {match[2].removesuffix('.o')}")


def _pip(
    log: Path,
    *arguments: str,
    env: dict[str, str] | None = None,
    on_line: Callable[[str], None] = lambda line: None,
) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    with log.open("a") as file:
        process = subprocess.Popen(
            command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        error = ""
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                on_line(line)
                if not error and re.search(r"\berror\b:", line, re.IGNORECASE):
                    error = line.strip()
    if process.returncode:
        raise HvdFtError(
            f"pip {arguments[0]} failed for Horovod {HOROVOD_VERSION}: "
            f"{error or f'exit code {process.returncode}'}; the log is {log}"
        )


def _check_tools() -> None:
    compiler = os.environ.get("CXX", "g++")
    for tool in (compiler, "make"):
        if shutil.which(tool) is None:
            raise HvdFtError(
                f"{tool} was not found, and Horovod has to be compiled; "
                "install a compiler (Debian: apt-get install g++ make)"
            )


def _cache_dir() -> Path:
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file():
        cache = checkout / ".cache" / "horovod"
    else:
        user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = Path(user) / "hvd_ft" / "horovod"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextmanager
def _lock(cache: Path) -> Iterator[None]:
    """Lets one build at a time use the cache and the environment."""
    with (cache / "lock").open("w") as file:
        other = f"another build of Horovod that holds {file.name}"
        remedy = f"let it end, or end it (fuser {file.name} shows it)"
        lock_in_time(file.fileno(), _BUILD_LOCK_SECONDS, other, remedy)
        yield


def main(arguments: list[str] | None = None) -> int:
    """Builds and installs: `hvdft build-horovod`; the Makefile calls this module.

    Args:
        arguments: the command line; that of the process by default.

    Returns: 0, or another number after printing an error.
    """
    parser = argparse.ArgumentParser(prog="hvdft build-horovod", description=__doc__)
    parser.add_argument(
        "--force", action="store_true", help="build even if the right build is installed"
    )
    parser.add_argument(
        "--with",
        dest="frameworks",
        metavar="NAMES",
        help="frameworks to build for, such as tensorflow,torch; by default those that are "
        "installed",
    )
    options = parser.parse_args(arguments)
    try:
        keys = options.frameworks.split(",") if options.frameworks else None
        build(options.force, frameworks=None if keys is None else named(keys))
    except HvdFtError as error:
        say(error)
        return 1
    except KeyboardInterrupt:
        say("interrupted; run it again to continue")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
