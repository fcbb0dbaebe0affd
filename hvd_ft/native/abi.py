"""The core's C functions, structures and constants, as the headers in `csrc/include` declare them.

Nothing is declared a second time: `setup.py` generates `_abi.py` from the headers when it compiles
the libraries. The headers document the names; the other modules here wrap them in Python.
"""

from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from hvd_ft.errors import HvdFtError, NoRoomError
from hvd_ft.libraries import library_path, mpi_library_path

_BUILD = "build it with 'pip install .' or 'make core'"

try:
    from hvd_ft.native._abi import ffi
except ImportError as _error:
    raise HvdFtError(f"hvd_ft is not built ({_error}); {_BUILD}") from None

T = TypeVar("T")

# Prefixes of the functions of libhvdft_mpi.so, which are declared together with those of
# libhvd_ft.so.
_MPI = ("hvdft_ring_", "hvdft_leader_", "hvdft_probe_")


def constant(name: str) -> int:
    """Returns the value of an enumerator of the headers."""
    return int(ffi.integer_const(name))


def text(pointer: Any) -> str:
    """Returns a C string as a str."""
    return bytes(ffi.string(pointer)).decode(errors="replace")


def read(kind: type[T], struct: Any) -> T:
    """Copies a C structure into a dataclass.

    Args:
        kind: a dataclass with the field names of the structure; the types of its fields convert the
            values.
        struct: a pointer to the structure, or the structure.
    """
    values = {f.name: f.type(getattr(struct, f.name)) for f in fields(kind)}  # type: ignore
    return kind(**values)


def _load(path: str, remedy: str, *, mpi: bool) -> Any:
    try:
        library = ffi.dlopen(path)
        for name in dir(library):
            if name.startswith("hvdft_") and name.startswith(_MPI) == mpi:
                getattr(library, name)  # it is there
    except (OSError, ffi.error) as error:
        reason = str(error).removeprefix(f"cannot load library '{path}': ")
        raise HvdFtError(f"the library {path} cannot be loaded ({reason}); {remedy}") from None
    return library


@cache
def library() -> Any:
    """Returns libhvd_ft.so.

    Raises:
        HvdFtError: The library is absent, or lacks a function.
    """
    return _load(library_path(), _BUILD, mpi=False)


@cache
def mpi_library() -> Any:
    """Returns libhvdft_mpi.so.

    Raises:
        HvdFtError: The library is absent, or lacks a function.
    """
    remedy = "install hvd_ft again: pip install . (in a checkout: make core)"
    return _load(mpi_library_path(), remedy, mpi=True)


def error() -> str:
    """Returns the core's last error in this thread."""
    return text(library().hvdft_error())


def checked(code: int) -> int:
    """Checks a return value of the core, and returns it.

    Raises:
        NoRoomError: The arena's limit is reached, or its filesystem is full.
        HvdFtError: The call failed for another reason.
    """
    if code < 0:
        raise (NoRoomError if code == constant("HVDFT_ENOSPACE") else HvdFtError)(error())
    return code
