"""Job directories: made, locked, and removed by the last process of the job.

`<arena directory>/hvdft-<uid>/<job>/` holds the files of one job, among them `lock`. Every agent
and shim of the job holds a shared flock on that file for as long as it lives; a process that gets
the exclusive flock knows that the job is dead, and may remove the directory. If all processes that
hold it are stopped for ever (abandoned.py), they are ended first. Creating a directory and sweeping
take the flock of the user's directory, so that a sweep never sees a new directory that is not yet
locked.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Collection, Iterator

from hvd_ft.errors import HvdFtError
from hvd_ft.job.abandoned import is_abandoned
from hvd_ft.job.processes import end_processes
from hvd_ft.job.setting_values import is_job_id
from hvd_ft.system.file_lock import lock_in_time

LOCK_NAME = "lock"
KEPT_NAME = "kept"  # the file that marks a directory that outlives its job
_USER_LOCK_TIMEOUT_SECONDS = 30.0
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


class JobDirectory:
    """A job's directory with the caller's shared lock on it."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, arena_dir: str, job: str) -> "JobDirectory":
        """Makes the directory of a new job.

        Args:
            arena_dir: where arenas live, such as `/dev/shm`.
            job: the job's id, letters and digits.

        Raises:
            HvdFtError: a job of that id exists, or the directory cannot be created safely.
        """
        with _locked_user_directory(arena_dir) as user_dir:
            path = job_path(arena_dir, job)
            try:
                os.mkdir(job, 0o700, dir_fd=user_dir)
            except FileExistsError:
                raise HvdFtError(
                    f"{path} exists already: another job has the id {job}; give this job another"
                ) from None
            except OSError as error:
                raise _refused(path, error) from error
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                lock = os.open(os.path.join(path, LOCK_NAME), flags, 0o600)
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError as error:
                shutil.rmtree(path, ignore_errors=True)
                raise _refused(path, error) from error
        return cls(path, lock)

    @classmethod
    def join(cls, path: str) -> "JobDirectory":
        """Takes a shared lock on a directory that another process of the job has created.

        Raises:
            HvdFtError: the directory is gone, and so is the job.
        """
        name = os.path.join(path, LOCK_NAME)
        try:
            lock = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                # A sweep may have removed the file between the two calls.
                if not os.path.samestat(os.fstat(lock), os.stat(name)):
                    raise FileNotFoundError(name)
            except OSError:
                os.close(lock)
                raise
        except OSError as error:
            raise HvdFtError(
                f"the job of {path} is gone ({error.strerror}): start it again"
            ) from error
        return cls(path, lock)

    def leave(self, files_stay: bool = False) -> bool:
        """Releases the lock; the last process of the job removes the directory.

        Args:
            files_stay: whether the directory stays even then, so that the job can be resumed.

        Returns:
            Whether this was the last one.
        """
        if files_stay:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(os.path.join(self.path, KEPT_NAME), os.O_CREAT | os.O_EXCL, 0o600))
        # flock() releases the shared lock before it tries for the exclusive one, so if several
        # processes leave at once one of them always gets it.
        last = _try_exclusive(self._lock)
        if last and not _is_kept(self.path):
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        return last


def new_job_id() -> str:
    """Returns a job id: seconds since 1970 and 40 random bits, in letters and digits."""
    return _base36(int(time.time())) + _base36(int.from_bytes(os.urandom(5))).rjust(8, "0")


def user_path(arena_dir: str) -> str:
    """Returns the directory that holds the user's jobs."""
    return os.path.join(arena_dir, f"hvdft-{os.geteuid()}")


def job_path(arena_dir: str, job: str) -> str:
    """Returns the directory of a job, which need not exist."""
    if not is_job_id(job):
        raise HvdFtError(f"{job!r} is not a job id: give 1 to 48 letters and digits")
    return os.path.join(user_path(arena_dir), job)


def sweep_stale(
    arena_dir: str, *, but: Collection[str] | str | None = None, only: str | None = None
) -> list[str]:
    """Removes the directories of this user's dead jobs.

    A job that could be resumed keeps its directory, unless it is named.

    Args:
        arena_dir: where arenas live.
        but: the ids of jobs whose directories are kept, or one id.
        only: the id of the only job whose directory is removed, also if it could be resumed; None:
            any.

    Returns:
        The ids of these jobs, for the caller to report.

    Raises:
        HvdFtError: the user's directory is not safe or cannot be locked.
    """
    kept = {but} if isinstance(but, str) else set(but or ())
    removed = []
    with _locked_user_directory(arena_dir) as user_dir:
        for job, path in _dead(arena_dir, user_dir, only):
            if job in kept or (only is None and _is_kept(path)):
                continue
            if not _is_free(path):  # its last processes are stopped for ever
                end_processes(job, patience_seconds=0)
                if not _is_free(path):
                    continue
            shutil.rmtree(path, ignore_errors=True)
            removed.append(job)
    return removed


def dead_jobs(arena_dir: str, only: str | None = None) -> dict[str, bool]:
    """Returns the ids of this user's dead jobs, and whether each could be resumed.

    Args:
        arena_dir: where arenas live.
        only: the id of the only job that counts; None: any.

    Raises:
        HvdFtError: the user's directory is not safe or cannot be locked.
    """
    with _locked_user_directory(arena_dir) as user_dir:
        return {job: _is_kept(path) for job, path in _dead(arena_dir, user_dir, only)}


def _dead(arena_dir: str, user_dir: int, only: str | None) -> Iterator[tuple[str, str]]:
    """Yields the ids and directories of dead jobs; the user's directory is locked."""
    with os.scandir(user_dir) as entries:
        jobs = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    for job in sorted(jobs):
        path = os.path.join(user_path(arena_dir), job)
        if only not in (None, job):
            continue
        if _is_free(path) or is_abandoned(job, os.path.join(path, LOCK_NAME)):
            yield job, path


def _is_kept(path: str) -> bool:
    return os.path.exists(os.path.join(path, KEPT_NAME))


def _is_free(path: str) -> bool:
    """Returns whether no process holds the lock of a job's directory."""
    try:
        lock = os.open(os.path.join(path, LOCK_NAME), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True  # its creator died before locking it: creators take the lock that is held here
    except OSError:
        return False
    try:
        return _try_exclusive(lock)
    finally:
        os.close(lock)


def _try_exclusive(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _locked_user_directory(arena_dir: str) -> Iterator[int]:
    """Creates and checks the user's directory; yields its descriptor, locked exclusively."""
    path = user_path(arena_dir)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise _refused(path, error) from error
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HvdFtError(
            f"{path} is not a directory that can be opened ({error.strerror}): "
            "remove it or set HOROVOD_FT_ARENA_DIR to another directory"
        ) from error
    try:
        _check_private(path, os.fstat(descriptor))
        other = f"another hvdft process that holds the lock of {path}"
        remedy = f"end that process (fuser {path} shows it)"
        lock_in_time(descriptor, _USER_LOCK_TIMEOUT_SECONDS, other, remedy)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_private(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        reason = f"belongs to user {found.st_uid}, not to you"
    elif stat.S_IMODE(found.st_mode) & 0o077:
        reason = f"is open to others (mode {stat.S_IMODE(found.st_mode):04o}, not 0700)"
    else:
        return
    raise HvdFtError(
        f"{path} {reason}: remove it, or set HOROVOD_FT_ARENA_DIR to another directory"
    )


def _refused(path: str, error: OSError) -> HvdFtError:
    return HvdFtError(
        f"cannot make {path} ({error.strerror}): "
        "set HOROVOD_FT_ARENA_DIR to a directory that is writable for you"
    )


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _ALPHABET[digit] + digits
    return digits
