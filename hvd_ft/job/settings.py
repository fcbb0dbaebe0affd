"""The user's settings: the `HOROVOD_FT_*` environment variables, checked in one place."""

import difflib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hvd_ft.errors import HvdFtError
from hvd_ft.job import pinning

MINIMUM_ARENA_BYTES = 64 << 20
MINIMUM_SUSPECT_SECONDS = 2.0
TOPOLOGIES = ("hierarchical", "flat")  # the first one is the default
ENDPOINT_CHOICES = ("auto", "1", "3")  # for a node's leader; the first one is the default
# Variables that are no settings: launcher, agents, workers and hook commands are given them.
INTERNAL = frozenset(
    f"HOROVOD_FT_{name}"
    for name in (
        *("JOB", "LAUNCHER", "GENERATION"),
        *("DIR", "LIBRARY", "HOMOGENEOUS", "CPUS", "INJECT", "STACKS"),
        *("RANK", "INCARNATION", "STEP", "TIME"),
        *("EXIT_STATUS", "SECONDS_DOWN", "OPS_REPLAYED"),
    )
)
_PREFIX = "HOROVOD_FT_"
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
    lease_seconds: float = 20.0  # so long a host, or a process of ours, may be silent
    suspect_seconds: float = 5.0  # by default a quarter of the lease
    host_timeout_seconds: float = 300.0  # so long a lost host is waited for
    link_timeout_seconds: float = 30.0  # so long a link may deliver nothing that is on its way
    stall_warning_seconds: float = 30.0  # 0: never
    stop_grace_seconds: float = 10.0  # for workers to end after SIGINT
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
            HvdFtError: names the variable, its value and what is allowed; or a variable that is
                no setting, and the setting that is perhaps meant.
        """
        env = _Read(env)
        default = cls()
        recovery = _seconds(
            env, "HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS", default.recovery_timeout_seconds
        )
        lease = _seconds(env, "HOROVOD_FT_LEASE_SECONDS", default.lease_seconds)
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
            lease_seconds=lease,
            suspect_seconds=_seconds(env, "HOROVOD_FT_SUSPECT_SECONDS", lease / 4),
            host_timeout_seconds=_seconds(
                env, "HOROVOD_FT_HOST_TIMEOUT_SECONDS", default.host_timeout_seconds
            ),
            link_timeout_seconds=_seconds(
                env, "HOROVOD_FT_LINK_TIMEOUT_SECONDS", default.link_timeout_seconds
            ),
            stall_warning_seconds=_seconds(
                env,
                "HOROVOD_FT_STALL_WARNING_SECONDS",
                default.stall_warning_seconds,
                zero="no warning",
            ),
            stop_grace_seconds=_seconds(
                env, "HOROVOD_FT_STOP_GRACE_SECONDS", default.stop_grace_seconds
            ),
            shared_dir=_directory(env, "HOROVOD_FT_SHARED_DIR", None),
            launcher=env.get("HOROVOD_FT_LAUNCHER") or None,
            generation=_count(env, "HOROVOD_FT_GENERATION", default.generation),
        )
        _refuse_unknown(env)
        settings._check_order()
        return settings

    def _check_order(self) -> None:
        """Raises HvdFtError unless the limits that depend on each other fit together."""
        if self.replay_timeout_seconds >= self.recovery_timeout_seconds:
            raise HvdFtError(
                f"HOROVOD_FT_REPLAY_TIMEOUT_SECONDS is {self.replay_timeout_seconds:g} and "
                f"HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS {self.recovery_timeout_seconds:g}: a replay "
                "is a part of a recovery, so give the first one less"
            )
        for shorter, low, longer, high in (
            ("SUSPECT", self.suspect_seconds, "LEASE", self.lease_seconds),
            ("LEASE", self.lease_seconds, "HOST_TIMEOUT", self.host_timeout_seconds),
        ):
            if low >= high:
                raise HvdFtError(
                    f"HOROVOD_FT_{shorter}_SECONDS is {low:g} and HOROVOD_FT_{longer}_SECONDS "
                    f"{high:g}: a silent host is suspect first, then lost, then given up, so give "
                    "the first one less"
                )
        if self.link_timeout_seconds <= self.suspect_seconds:
            raise HvdFtError(
                f"HOROVOD_FT_LINK_TIMEOUT_SECONDS is {self.link_timeout_seconds:g} and "
                f"HOROVOD_FT_SUSPECT_SECONDS {self.suspect_seconds:g}: links of a host that does "
                "not answer are not judged, so give the first one more"
            )
        if self.suspect_seconds < MINIMUM_SUSPECT_SECONDS:
            raise HvdFtError(
                f"HOROVOD_FT_SUSPECT_SECONDS is {self.suspect_seconds:g}: hosts are asked once a "
                f"second, so give {MINIMUM_SUSPECT_SECONDS:g} or more (by default it is a quarter "
                "of HOROVOD_FT_LEASE_SECONDS)"
            )
        hang, window = self.hang_timeout_seconds, self.failure_window_seconds
        if hang and hang * self.max_failures >= window:
            raise HvdFtError(
                f"HOROVOD_FT_HANG_TIMEOUT_SECONDS is {hang:g}, so {self.max_failures} hangs "
                f"take longer than HOROVOD_FT_FAILURE_WINDOW_SECONDS, {window:g}, and a worker "
                "that always hangs would be restarted for ever: give the window more"
            )

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


class _Read(Mapping[str, str]):
    """An environment that remembers which variables it was asked for."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self._env[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._env)

    def __len__(self) -> int:
        return len(self._env)


def _refuse_unknown(env: _Read) -> None:
    """Refuses names that begin as a setting does and that nobody reads."""
    settings = {name for name in env.asked - INTERNAL if name.startswith(_PREFIX)}
    for name in sorted(env):
        if name.startswith(_PREFIX) and name not in settings | INTERNAL:
            words = {setting.removeprefix(_PREFIX): setting for setting in settings}
            nearest = difflib.get_close_matches(name.removeprefix(_PREFIX), words, n=1)
            remedy = f"is {words[nearest[0]]} meant?" if nearest else "unset it"
            raise HvdFtError(f"{name} is no setting of hvd_ft: {remedy} (docs/usage.md has them)")


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


def _seconds(
    env: Mapping[str, str], name: str, default: Default, zero: str = ""
) -> float | Default:
    """Reads a number of seconds; `zero` says what 0 means where it is allowed."""
    value = env.get(name)
    if not value:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not (0 < seconds <= 10**7 or (zero and seconds == 0)):
        none = f", or 0 for {zero}" if zero else ""
        raise _wrong(name, value, f"a number of seconds above 0 (at most 10000000){none}")
    return seconds


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    value = env.get(name)
    if not value:
        return default
    if re.fullmatch(r"[0-9]{1,4}", value.strip(), re.ASCII) is None:
        raise _wrong(name, value, "a whole number from 0 (never restart) to 9999")
    return int(value)
