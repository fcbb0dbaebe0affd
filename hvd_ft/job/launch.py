"""The variables that one `hvdft run` sets for the agents that it starts; no user sets them."""

from collections.abc import Mapping
from dataclasses import dataclass

from hvd_ft.job import setting_values as values
from hvd_ft.members.membership import Membership

_LONGEST_START_NS = 600 * 10**9


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One generation of agents, as its launcher has begun it.

    Attributes:
        job: the job's id; None: rank 0 makes one up, as hvdft run has not started the job.
        launcher: where hvdft run listens; None: it has not started the job.
        generation: the number of this generation.
        members: the hosts of this generation; None: hvdft run has not started the job on several
            hosts.
        act_lease: seconds, the length of the lease without which a host's processes are stopped;
            None: they need none.
        shim_starter: the name of the socket at which a new shim can be ordered from the starter of
            its host; "": there is none.
        begun: when the launcher began to start this generation, CLOCK_REALTIME in seconds; None:
            unknown.
    """

    job: str | None = None
    launcher: str | None = None
    generation: int = 0
    members: Membership | None = None
    act_lease: float | None = None
    shim_starter: str = ""
    begun: float | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Launch":
        """Reads the launcher's variables.

        Args:
            env: environment variables, such as `os.environ`; an empty value counts as unset.

        Raises:
            HvdFtError: names the variable, its value and what is allowed.
        """
        return cls(
            job=values.job_id(env, "HOROVOD_FT_JOB", None),
            launcher=env.get("HOROVOD_FT_LAUNCHER") or None,
            generation=values.count(env, "HOROVOD_FT_GENERATION", 0),
            members=values.members(env, "HOROVOD_FT_MEMBERS", None),
            act_lease=values.seconds(env, "HOROVOD_FT_ACT_LEASE", None),
            shim_starter=env.get("HOROVOD_FT_SHIM_STARTER", ""),
            begun=values.seconds(env, "HOROVOD_FT_BEGUN", None, most=1e12),
        )

    def begun_monotonic_ns(self, real_ns: int, monotonic_ns: int) -> int | None:
        """Returns when this generation was begun, CLOCK_MONOTONIC of this host.

        The launcher may be on another host, whose clock may be wrong: a time that is ahead, or
        longer ago than any start takes, does not count.

        Args:
            real_ns: CLOCK_REALTIME of now.
            monotonic_ns: CLOCK_MONOTONIC of now.
        """
        if self.begun is None:
            return None
        age_ns = real_ns - int(self.begun * 1e9)
        return monotonic_ns - age_ns if 0 <= age_ns <= _LONGEST_START_NS else None

    def since(self, rank: int) -> int:
        """Returns the epoch in which the host of a rank took its place in the job."""
        if self.members is None or rank >= self.members.size:
            return 0
        return self.members.places[self.members.place_of(rank)].since

    def guest_place(self, rank: int) -> int | None:
        """Returns the number of a rank's place if that is a guest of another place's host."""
        if self.members is None or rank >= self.members.size:
            return None
        number = self.members.place_of(rank)
        return number if self.members.is_guest(number) else None

    def leaves(self, rank: int) -> bool:
        """Returns whether a rank leaves the job, or has left it: its place has no own host."""
        return self.members is not None and rank in self.members.leaving
