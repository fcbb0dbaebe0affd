"""The user's settings: the `HOROVOD_FT_*` environment variables, checked in one place."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hvd_ft import pinning
from hvd_ft.errors import HvdFtError

MINIMUM_ARENA_BYTES = 64 << 20
TOPOLOGIES = ("hierarchical", "flat")  # the first one is the default
ENDPOINT_CHOICES = ("auto", "1", "3")  # for a node's leader; the first one is the default
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Settings:
    """What the user may set for a job; the defaults are those of an empty environment."""

    arena_dir: str = "/dev/shm"
    arena_bytes: int | None = None  # None: 3/4 of what is free
    job: str | None = None  # None: rank 0 makes one up
    start_timeout_seconds: float = 120.0
    recovery_timeout_seconds: float = 600.0
    replay_timeout_seconds: float = 60.0  # by default at most half of the recovery's
    max_failures: int = 3
    failure_window_seconds: float = 300.0
    hang_timeout_seconds: float | None = None  # None: nobody is taken for stuck
    message_timeout_seconds: float = 600.0
    topology: str = "hierarchical"
    endpoints: str = "auto"
    pin: bool = False  # as hvdft run says; another launcher has perhaps pinned the agents
    adoption_timeout_seconds: float = 60.0
    shared_dir: str | None = None  # None: agents meet over MPI alone
    launcher: str | None = None  # where hvdft run listens; None: it has not started the job
    generation: int = 0  # of the agents, as it has numbered them

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Reads the settings.

        Args:
            env: environment variables, such as `os.environ`; an empty value counts as unset.

        Returns:
            The settings, each within its range.

        Raises:
            HvdFtError: names the variable, its value and what is allowed.
        """
        default = cls()
        recovery = _seconds(
            env, "HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS", default.recovery_timeout_seconds
        )
        settings = cls(
            arena_dir=_directory(env, "HOROVOD_FT_ARENA_DIR", default.arena_dir),
            arena_bytes=_bytes(env, "HOROVOD_FT_ARENA_BYTES"),
            job=_job(env, "HOROVOD_FT_JOB"),
            start_timeout_seconds=_seconds(
                env, "HOROVOD_FT_START_TIMEOUT_SECONDS", default.start_timeout_seconds
            ),
            recovery_timeout_seconds=recovery,
            replay_timeout_seconds=_seconds(
                env,
                "HOROVOD_FT_REPLAY_TIMEOUT_SECONDS",
                min(default.replay_timeout_seconds, recovery / 2),
            ),
            max_failures=_count(env, "HOROVOD_FT_MAX_FAILURES", default.max_failures),
            failure_window_seconds=_seconds(
                env, "HOROVOD_FT_FAILURE_WINDOW_SECONDS", default.failure_window_seconds
            ),
            hang_timeout_seconds=_seconds(env, "HOROVOD_FT_HANG_TIMEOUT_SECONDS", None),
            message_timeout_seconds=_seconds(
                env, "HOROVOD_FT_MESSAGE_TIMEOUT_SECONDS", default.message_timeout_seconds
            ),
            topology=_choice(env, "HOROVOD_FT_TOPOLOGY", TOPOLOGIES),
            endpoints=_choice(env, "HOROVOD_FT_ENDPOINTS", ENDPOINT_CHOICES),
            pin="HOROVOD_FT_PIN" in env and pinning.is_wanted(env),
            adoption_timeout_seconds=_seconds(
                env, "HOROVOD_FT_ADOPTION_TIMEOUT_SECONDS", default.adoption_timeout_seconds
            ),
            shared_dir=_directory(env, "HOROVOD_FT_SHARED_DIR", None),
            launcher=env.get("HOROVOD_FT_LAUNCHER") or None,
            generation=_count(env, "HOROVOD_FT_GENERATION", default.generation),
        )
        if settings.replay_timeout_seconds >= recovery:
            raise HvdFtError(
                f"HOROVOD_FT_REPLAY_TIMEOUT_SECONDS is {settings.replay_timeout_seconds:g} and "
                f"HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS {recovery:g}: a replay is a part of a "
                "recovery, so give the first one less"
            )
        hang, window = settings.hang_timeout_seconds, settings.failure_window_seconds
        if hang and hang * settings.max_failures >= window:
            raise HvdFtError(
                f"HOROVOD_FT_HANG_TIMEOUT_SECONDS is {hang:g}, so {settings.max_failures} hangs "
                f"take longer than HOROVOD_FT_FAILURE_WINDOW_SECONDS, {window:g}, and a worker "
                "that always hangs would be restarted for ever: give the window more"
            )
        return settings

    def arena_limit_bytes(self) -> int:
        """Returns how many bytes the arenas of the job may take on this node.

        Raises:
            HvdFtError: the arena directory is missing, not writable, full or too small.
        """
        if not os.path.isdir(self.arena_dir):
            raise HvdFtError(
                f"the arena directory {self.arena_dir} is not there: "
                "set HOROVOD_FT_ARENA_DIR to a directory in memory or on a fast disk"
            )
        if not os.access(self.arena_dir, os.W_OK | os.X_OK):
            raise HvdFtError(
                f"the arena directory {self.arena_dir} is not writable for you: "
                "set HOROVOD_FT_ARENA_DIR to one that is"
            )
        stat = os.statvfs(self.arena_dir)
        return self._limit_within(stat.f_bavail * stat.f_frsize)

    def _limit_within(self, free: int) -> int:
        limit = free * 3 // 4 if self.arena_bytes is None else self.arena_bytes
        if limit > free:
            raise HvdFtError(
                f"HOROVOD_FT_ARENA_BYTES asks for {_mib(limit)}, but {self.arena_dir} has only "
                f"{_mib(free)} free: free some, enlarge it or ask for less"
            )
        if limit < MINIMUM_ARENA_BYTES:
            # Only the default can be below the minimum: the parser refuses a smaller setting.
            raise HvdFtError(
                f"{self.arena_dir} has only {_mib(free)} free and hvd_ft takes 3/4 of it, at least "
                f"{_mib(MINIMUM_ARENA_BYTES)}: free some, enlarge it (docker: --shm-size) or set "
                "HOROVOD_FT_ARENA_DIR to another directory"
            )
        return limit


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"


def _wrong(name: str, value: str, allowed: str) -> HvdFtError:
    return HvdFtError(f"{name}={value!r} is not allowed: give {allowed}")


Place = TypeVar("Place", str, None)


def _directory(env: Mapping[str, str], name: str, default: Place) -> str | Place:
    value = env.get(name)
    if not value:
        return default
    if not os.path.isabs(value):
        raise _wrong(name, value, "an absolute path")
    return os.path.normpath(value)


def _bytes(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name)
    if not value:
        return None
    allowed = "a number of bytes of at least 64M, with or without a suffix K, M or G"
    match = re.fullmatch(r"([0-9]{1,18})([KMG]?)", value.strip().upper(), re.ASCII)
    if match is None:
        raise _wrong(name, value, allowed)
    count = int(match[1]) * _UNITS[match[2]]
    if not MINIMUM_ARENA_BYTES <= count < 1 << 63:
        raise _wrong(name, value, allowed)
    return count


def _choice(env: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    value = env.get(name) or choices[0]
    if value not in choices:
        raise _wrong(name, value, " or ".join(choices))
    return value


def _job(env: Mapping[str, str], name: str) -> str | None:
    value = env.get(name)
    if not value:
        return None
    if not is_job_id(value):
        raise _wrong(name, value, "1 to 48 letters and digits")
    return value


def is_job_id(text: str) -> bool:
    """Tells whether `text` can name a job: it becomes the name of a directory."""
    return re.fullmatch(r"[A-Za-z0-9]{1,48}", text) is not None


Default = TypeVar("Default", float, None)


def _seconds(env: Mapping[str, str], name: str, default: Default) -> float | Default:
    value = env.get(name)
    if not value:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 10**7:
        raise _wrong(name, value, "a number of seconds above 0 (at most 10000000)")
    return seconds


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    value = env.get(name)
    if not value:
        return default
    if re.fullmatch(r"[0-9]{1,4}", value.strip(), re.ASCII) is None:
        raise _wrong(name, value, "a whole number from 0 (never restart) to 9999")
    return int(value)
