"""Checks the requirements: Intel MPI, a framework, the patched Horovod, the libraries.

Everything is looked up without importing a framework or Horovod, so that a check is fast.
"""

import os
from collections.abc import Callable, Mapping

from hvd_ft import __version__, libraries
from hvd_ft.errors import HvdFtError
from hvd_ft.installed import horovod_source
from hvd_ft.installed.frameworks import check_frameworks, named
from hvd_ft.installed.horovod_source import HOROVOD_VERSION
from hvd_ft.mpi.environment import mpi_root
from hvd_ft.system.distributions import version_of

_REMEDY = "install hvd_ft again: pip install . (in a checkout: make core)"


def check_environment() -> dict[str, str]:
    """Checks that everything a job needs is installed in fitting versions.

    Returns: The parts: the name of each, with its version or path.

    Raises:
        HvdFtError: a part is absent or does not fit; the message has the remedy.
    """
    return {name: check() for name, check in CHECKS.items()}


def check_mpi() -> str:
    """Returns Intel MPI's version, or its place; raises HvdFtError when it is absent."""
    root = mpi_root()
    return version_of("impi-rt") or str(root)


def check_horovod() -> str:
    """Returns Horovod's version, with the frameworks that it was built for.

    Raises:
        HvdFtError: it is absent, or lacks the ft backend of this hvd_ft.
    """
    version = version_of("horovod")
    remedy = "run 'hvdft build-horovod'"
    if version is None:
        raise HvdFtError(f"Horovod is not installed; {remedy}")
    if version != HOROVOD_VERSION:
        raise HvdFtError(
            f"Horovod {version} is installed, and hvd_ft works with {HOROVOD_VERSION}; {remedy}"
        )
    build = horovod_source.installed_build()
    if build is None or not build.key:
        raise HvdFtError(
            f"Horovod {version} has no ft backend: it was not built by hvd_ft; {remedy}"
        )
    bindings = named(build.frameworks)
    if not bindings or build.key != horovod_source.build_key(bindings):
        raise HvdFtError(
            f"Horovod {version} has the ft backend of another hvd_ft, framework or Intel MPI "
            f"(key {build.key}); {remedy}"
        )
    return f"{version} for {' and '.join(framework.name for framework in bindings)}"


def check_library() -> str:
    """Returns the version of libhvd_ft.so; raises HvdFtError when it is absent or does not fit."""
    path = libraries.library_path()
    _check_file(path)
    from hvd_ft import native  # needs cffi, which may be the absent part

    version = native.version()
    if version != __version__:
        raise HvdFtError(f"{path} is of version {version}, hvd_ft of {__version__}; {_REMEDY}")
    return version


def check_mpi_library() -> str:
    """Returns the place of libhvdft_mpi.so; raises HvdFtError when it is absent.

    It is not loaded, because this requires MPI in the process. It is built together with
    libhvdft_listen.so.
    """
    path = libraries.mpi_library_path()
    _check_file(path)
    _check_file(libraries.listen_library_path())
    return path


def _check_file(path: str) -> None:
    if not os.path.isfile(path):
        raise HvdFtError(f"{path} was not found: it has not been compiled; {_REMEDY}")


CHECKS: Mapping[str, Callable[[], str]] = {
    "Intel MPI": check_mpi,
    "framework": check_frameworks,
    "Horovod": check_horovod,
    "libhvd_ft.so": check_library,
    "libhvdft_mpi.so": check_mpi_library,
}
