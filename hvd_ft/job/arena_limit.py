"""How much a job's arenas may take on this node."""

import os

from hvd_ft.errors import HvdFtError
from hvd_ft.job.settings import MINIMUM_ARENA_BYTES, Settings


def arena_limit_bytes(settings: Settings) -> int:
    """Returns the limit of the job's arenas on this node, in bytes.

    Raises:
        HvdFtError: the arena directory is missing, not writable, full or too small.
    """
    directory = settings.arena_dir
    if not os.path.isdir(directory):
        raise HvdFtError(
            f"the arena directory {directory} was not found: "
            "set HOROVOD_FT_ARENA_DIR to a directory in memory or on a fast disk"
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        raise HvdFtError(
            f"the arena directory {directory} is not writable for you: "
            "set HOROVOD_FT_ARENA_DIR to one that is"
        )
    stat = os.statvfs(directory)
    free = stat.f_bavail * stat.f_frsize
    limit = free * 3 // 4 if settings.arena_bytes is None else settings.arena_bytes
    if limit > free:
        raise HvdFtError(
            f"HOROVOD_FT_ARENA_BYTES asks for {_mib(limit)}, but {directory} has only "
            f"{_mib(free)} free: free some, enlarge it or ask for less"
        )
    if limit < MINIMUM_ARENA_BYTES:
        # Only the default can be below the minimum: the parser refuses smaller settings.
        raise HvdFtError(
            f"{directory} has only {_mib(free)} free and hvd_ft takes 3/4 of it, at least "
            f"{_mib(MINIMUM_ARENA_BYTES)}: free some, enlarge it (docker: --shm-size) or set "
            "HOROVOD_FT_ARENA_DIR to another directory"
        )
    return limit


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"
