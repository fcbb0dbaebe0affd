"""The settings that Intel MPI needs before MPI_Init to have endpoints."""

import contextlib
import os
import sys

from hvd_ft.errors import HvdFtError

MOST_RINGS = 8
# Number 0 is left to the program's own communicators. A ring with two endpoints a member needs one
# for each of the two colours of edges, and one for the last edge of an odd ring.
_PROGRAM, _COLOURS = 1, 3
# MPI's own blocking calls yield: a polling wait takes the core from the processes it waits for.
_PATIENT = {"I_MPI_THREAD_YIELD": "3"}


def prepare(endpoints: int = 2, rings: int = 1) -> None:
    """Sets the environment for MPI_Init; call it before `from mpi4py import MPI`.

    Variables that are set already stay unchanged, except those that split threads.

    Args:
        endpoints: 2, a send and a receive endpoint for each process in each ring; or 1, one for
            both. With one ring that is MPI without split threads, which the ring variant `threads`
            needs.
        rings: As many as a `Ring` may have side by side, 1 to 8. Every endpoint takes memory, over
            TCP some 35 MB at most.

    Raises:
        HvdFtError: MPI is already initialised, `endpoints` is neither 1 nor 2, or `rings` is not 1
            to 8.
    """
    if endpoints not in (1, 2):
        raise HvdFtError(f"endpoints={endpoints!r} is not known to the ring: give 1 or 2")
    check_rings(rings)
    if mpi_is_running():
        raise HvdFtError(
            "MPI is running already, so it is too late to prepare it for the ring: "
            "call hvd_ft.ring.prepare() before 'from mpi4py import MPI'"
        )
    from hvd_ft.mpi.environment import split_into
    from hvd_ft.mpi.fabric import why_no_endpoints

    numbers = _PROGRAM + rings * (_COLOURS if endpoints == 2 else 1)
    unsplit = endpoints == rings == 1 or why_no_endpoints(os.environ)
    os.environ.update(split_into(1 if unsplit else numbers))
    for name, value in {**_PATIENT, **_root(), **_provider()}.items():
        os.environ.setdefault(name, value)


def check_rings(rings: int) -> None:
    """Raises HvdFtError if `rings` is not a valid number of rings."""
    if not isinstance(rings, int) or not 1 <= rings <= MOST_RINGS:
        raise HvdFtError(f"rings={rings!r} is not a number of rings: give 1 to {MOST_RINGS}")


def mpi_is_running() -> bool:
    """Returns whether mpi4py has initialised MPI."""
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_initialized())


def _root() -> dict[str, str]:
    """Returns the place of Intel MPI, which it does not find itself if it was installed by pip."""
    from hvd_ft.mpi.environment import mpi_root

    with contextlib.suppress(HvdFtError):
        return {"I_MPI_ROOT": str(mpi_root())}
    return {}


def _provider() -> dict[str, str]:
    """Returns the provider for Ethernet; with a fast fabric the choice is left to Intel MPI."""
    from hvd_ft.mpi.fabric import choose_provider, fast_devices

    chosen = choose_provider(os.environ, fast_devices()).name
    return {"I_MPI_OFI_PROVIDER": "tcp"} if chosen == "tcp" else {}
