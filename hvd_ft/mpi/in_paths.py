"""The MPIs that PATH and LD_LIBRARY_PATH lead to."""

import os
from collections.abc import Mapping
from pathlib import Path

_PROGRAMS = ("mpirun", "mpiexec", "mpiexec.hydra")
_LIBRARIES = ("libmpi.so", "libmpi.so.12", "libmpi.so.40")
# Folders below that of an MPI.
_INNER = ("bin", "lib", "lib64", "release", "debug", "release_mt", "debug_mt")


def mpis_in_path(environ: Mapping[str, str]) -> list[str]:
    """Returns the folders of the MPIs, each once, in the order of the paths.

    Args:
        environ: environment variables.
    """
    found = []
    for variable, names in (("PATH", _PROGRAMS), ("LD_LIBRARY_PATH", _LIBRARIES)):
        for folder in filter(None, environ.get(variable, "").split(os.pathsep)):
            found += [
                root for name in names if (root := _root(Path(folder, name))) and root not in found
            ]
    return list(dict.fromkeys(found))


def _root(file: Path) -> str:
    """Returns the folder of the MPI that a file belongs to; "" if it is not there."""
    if not file.is_file():
        return ""
    folder = file.resolve().parent
    while folder.name in _INNER:
        folder = folder.parent
    return str(folder)
