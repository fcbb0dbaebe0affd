"""The user's settings: the `HOROVOD_FT_*` environment variables, checked in one place."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.job import setting_values as values
from hvd_ft.job.binding import BIND_TO, MAP_BY
from hvd_ft.job.ports import Ports, read_ports
from hvd_ft.job.setting_order import check_order
from hvd_ft.system.nearest import meant

TOPOLOGIES = ("hierarchical", "flat")  # the first one is the default
MOST_CONNECTIONS = 8
MOST_TRANSFERS = 16
ENDPOINT_CHOICES = ("auto", "1", "2", "3")  # for a node's leader; the first one is the default
ABLATIONS = ("nothing", "network")  # the first one is the default
ON_DIVERGENCE = ("warn", "stop", "off")  # the first one is the default
# Variables that are no settings: launcher, agents, workers and hook commands are given them.
INTERNAL = frozenset(
    f"HOROVOD_FT_{name}"
    for name in (
        *("JOB", "LAUNCHER", "GENERATION", "MEMBERS", "ACT_LEASE", "SHIM_STARTER"),
        *("DIR", "LIBRARY", "HOMOGENEOUS", "NODE_SIZES", "CPUS", "INJECT", "STACKS", "RESUMED"),
        *("RANK", "INCARNATION", "STEP", "TIME"),
        *("EXIT_STATUS", "SECONDS_DOWN", "OPS_REPLAYED"),
    )
)
_PREFIX = "HOROVOD_FT_"


def _setting(
    read: Callable[..., Any],
    default: Any,
    meaning: str,
    *,
    shown: str | None = None,
    follows: Callable[[Mapping[str, Any]], Any] | None = None,
) -> Any:
    """A field that is the variable HOROVOD_FT_<its name>.

    Args:
        read: of `setting_values`.
        default: with an empty environment.
        meaning: for docs/reference/settings.md.
        shown: the default as it is shown there.
        follows: returns the default from the values of the settings before; None: `default`.
    """
    words = f"{default:g}" if isinstance(default, float) else f"{default}"
    told = {"read": read, "meaning": meaning, "shown": shown or words, "follows": follows}
    return field(default=default, metadata=told)


def variable(setting: Field[Any]) -> str:
    """Returns the name of a setting's environment variable."""
    return _PREFIX + setting.name.upper()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user may set for a job; the defaults are those of an empty environment."""

    arena_dir: str = _setting(
        values.directory, "/dev/shm", "Directory of logs and snapshots.", shown="`/dev/shm`"
    )
    arena_bytes: int | None = _setting(
        values.byte_count,
        None,
        "Limit for the whole job on this host; suffixes K, M, G.",
        shown="3/4 of what is free there",
    )
    recovery_timeout_seconds: float = _setting(
        values.seconds, 600.0, "A rank that died must be back within this time."
    )
    replay_timeout_seconds: float = _setting(
        values.seconds,
        60.0,
        "A replaying script that asks for anything but the log's next op is stopped after this "
        "time.",
        shown="60, at most half of the recovery timeout",
        follows=lambda read: min(60.0, read["recovery_timeout_seconds"] / 2),
    )
    start_timeout_seconds: float = _setting(
        values.seconds, 120.0, "All agents must have met within this time."
    )
    adoption_timeout_seconds: float = _setting(
        values.seconds, 60.0, "How long workers wait for new agents after theirs have died."
    )
    lease_seconds: float = _setting(
        values.seconds,
        20.0,
        "A host that has not answered for this time is lost, and waited for. An agent or a shim "
        "that has been silent for this time is killed and replaced.",
    )
    suspect_seconds: float = _setting(
        values.seconds,
        5.0,
        "A host that has not answered for this time is named.",
        shown="a quarter of the lease",
        follows=lambda read: read["lease_seconds"] / 4,
    )
    host_timeout_seconds: float = _setting(
        values.seconds,
        300.0,
        "How long a lost host is waited for. Then the job ends and its state stays; see "
        "[time-outs](../timeouts.md).",
    )
    fence_seconds: float = _setting(
        values.seconds,
        4.5,
        "In a job with [spare hosts](../how-to/spare-hosts.md): a host that has not answered for "
        "this time is replaced. Its own processes have been stopped by then: they act for two "
        "thirds of this time without hearing of the launcher. With "
        "[`--min-np`](../how-to/resize.md): it is done without, and fenced in the same way.",
    )
    link_timeout_seconds: float = _setting(
        values.seconds,
        30.0,
        "A link between two nodes that delivers nothing of what is on its way for this time is "
        "broken: new agents are started.",
    )
    stall_warning_seconds: float = _setting(
        functools.partial(values.seconds, zero="no warning"),
        30.0,
        "A rank that keeps others waiting for this time is named, with its Python stack; 0: never.",
    )
    stop_grace_seconds: float = _setting(
        values.seconds,
        10.0,
        "How long scripts may go on after the user's Ctrl-C, to save what they have.",
    )
    shared_dir: str | None = _setting(
        values.directory,
        None,
        "A directory shared by all hosts, in which agents find each other.",
        shown="none",
    )
    interface: str | None = _setting(
        lambda env, name, default: env.get(name) or default,
        None,
        "In a job on several hosts: the network interface of the launcher's host on which "
        "`hvdft run` and mpirun listen, such as `eth0`; `all`: on all of them. (MPI's own choice, "
        "for what agents send each other, is `FI_TCP_IFACE`; `--network-interface` sets both.)",
        shown="that of the host's name; if this means loopback, the one towards the other hosts",
    )
    ports: Ports | None = _setting(  # noqa: RUF009  (Ports is frozen)
        read_ports,
        None,
        "In a job on several hosts: the range of TCP ports, such as `40000-40099`, in which "
        "`hvdft run`, mpirun and MPI over TCP listen; `--ports` sets it. The launcher takes one, "
        "mpirun one a host, MPI up to six a rank.",
        shown="any free ports",
    )
    max_failures: int = _setting(
        functools.partial(values.count, zero="never restart"),
        3,
        "This many failures of one rank, or of agents, are survived …",
    )
    failure_window_seconds: float = _setting(
        values.seconds, 300.0, "… within this time; one more stops the job."
    )
    hang_timeout_seconds: float | None = _setting(
        values.seconds,
        None,
        "A worker that does nothing for this time while others wait for it is killed and "
        "restarted. Make it longer than the longest time between two collectives of a healthy "
        "rank; multiplied by `HOROVOD_FT_MAX_FAILURES` it must be less than the failure window.",
        shown="off",
    )
    snapshot_timeout_seconds: float = _setting(
        values.seconds,
        30.0,
        "How long a rank that takes a snapshot waits for the other ranks of its node, not counting "
        "the time in which one of them is restarted. A rank that has waited in vain says so, and "
        "takes its snapshots alone from then on. Less than the hang timeout, because a rank that "
        "waits does nothing else.",
        shown="30, at most half of the hang timeout",
        follows=lambda read: min(30.0, (read["hang_timeout_seconds"] or math.inf) / 2),
    )
    # By default only hvdft run binds: another launcher may have bound agents.
    bind_to: str = _setting(
        functools.partial(values.choice, choices=BIND_TO),
        "none",
        "What `hvdft run` binds each rank to, see [NUMA](../how-to/numa.md): `auto`, its even "
        "share of the host's CPUs, as Intel MPI does (with more ranks than CPUs only if they share "
        "them evenly); `core`, `socket` or `numa`; `none`: set it where several jobs share a host, "
        "or all would take the same CPUs. Bound threads run with `SCHED_BATCH`, so that they do "
        "not interrupt each other when woken. `--bind-to` sets it.",
        shown="what `I_MPI_PIN` and `I_MPI_PIN_DOMAIN` say, else `auto`",
    )
    map_by: str = _setting(
        functools.partial(values.choice, choices=MAP_BY),
        MAP_BY[0],
        "Where a host's ranks stand: `slot`, consecutive ones beside each other, with an even "
        "share of the CPUs each; `numa` or `socket`, in turn. `--map-by` sets it.",
        shown="`slot`",
    )
    topology: str = _setting(
        functools.partial(values.choice, choices=TOPOLOGIES),
        TOPOLOGIES[0],
        "`hierarchical` or `flat`, see [topology](../how-to/tuning.md#topology); `--topology` sets "
        "it.",
        shown="`hierarchical`",
    )
    endpoints: str = _setting(
        functools.partial(values.choice, choices=ENDPOINT_CHOICES),
        ENDPOINT_CHOICES[0],
        "MPI endpoints of the agent that speaks for its node. `3`: a thread and an endpoint each "
        "for sending, for receiving and for what nodes tell each other (the one that receives has "
        "another for small ops). `2`: one for the ring, one for what nodes tell each other. `1`: "
        "one for everything. "
        "`auto`: 3 where every host has a CPU for each of its ranks and for these three. Rank 0's "
        "value counts; the job says at its start which it uses, and why if only one.",
        shown="`auto`",
    )
    connections: int = _setting(
        functools.partial(values.count, least=1, most=MOST_CONNECTIONS),
        1,
        "Connections between the agents of neighbouring nodes, each with an endpoint, over which "
        "the messages of large ops take turns: 1 to 8. More than one where a single connection "
        "cannot fill the link ([several connections](../how-to/tuning.md#several-connections)). "
        "With fewer than 3 threads there is one. The same on all hosts.",
    )
    transfers: int = _setting(
        functools.partial(values.count, least=1, most=MOST_TRANSFERS),
        4,
        "Messages of large ops that may be under way over a connection at a time, in each "
        "direction: 1 to 16. Each agent has its own.",
    )
    nodes_below: int = _setting(
        functools.partial(values.count, least=1, most=4096),
        32,
        "What nodes tell each other (how their ranks fare, what the op log has) goes over a tree "
        "with rank 0's node on top: so many nodes are joined to the one above them, at most. Rank "
        "0's value counts.",
    )
    gather_bytes: int = _setting(
        functools.partial(
            values.byte_count,
            least=0,
            most=256 << 10,
            allowed="a number of bytes up to 256K, with or without a suffix K; 0: none is gathered",
        ),
        16 << 10,
        "Between N nodes, ops of up to so many bytes are gathered, which takes log2(N) hops; "
        "larger ones go round the ring, in 2(N - 1) hops that carry fewer bytes. See [small "
        "ops](../how-to/tuning.md#small-ops). At most 256K; 0: none is gathered. Rank 0's value "
        "counts.",
        shown="16K",
    )
    ring_segment_bytes: int = _setting(
        functools.partial(
            values.byte_count,
            least=16 << 10,
            most=1 << 20,
            allowed="a number of bytes from 16K to 1M, with or without a suffix K or M",
        ),
        256 << 10,
        "Between nodes larger ops travel the ring in messages of so many bytes: while one is "
        "received, the one before is added, and the one before that sent on. From 16K to 1M. Rank "
        "0's value counts; the op log has it for each op.",
        shown="256K",
    )
    node_segment_bytes: int = _setting(
        functools.partial(
            values.byte_count,
            least=16 << 10,
            most=512 << 10,
            power=True,
            allowed="16K, 32K, 64K, 128K, 256K or 512K",
        ),
        128 << 10,
        "The ranks of a node sum large ops so many bytes at a time: while a segment is summed, "
        "the next one is copied in. A power of two from 16K to 512K. Rank 0's value counts; the op "
        "log has it for each op.",
        shown="128K",
    )
    node_window_bytes: int = _setting(
        functools.partial(
            values.byte_count,
            least=values.LEAST_WINDOW_BYTES,
            most=values.MOST_WINDOW_BYTES,
            power=True,
            allowed="256K, 512K, 1M, 2M, 4M, 8M or 16M",
        ),
        1 << 20,
        "How far a rank may be ahead of the others of its node: so much of large ops is copied in "
        "before it is summed, and each rank takes so much memory. A power of two from 256K to 16M, "
        "2 to 128 times `HOROVOD_FT_NODE_SEGMENT_BYTES`. Rank 0's value counts, when the job "
        "starts; the same for all nodes and generations.",
        shown="1M",
    )
    yield_seconds: float = _setting(
        functools.partial(values.seconds, zero="no yielding", most=1.0),
        50e-6,
        "Between nodes: how long an agent's threads that wait for MPI only yield the CPU, before "
        "they nap between two looks. At most 1; 0: they nap at once. Each agent has its own.",
        shown="0.00005",
    )
    nap_seconds: float = _setting(
        functools.partial(values.seconds, most=0.1),
        1e-3,
        "Between nodes: how long such a nap is at most, while something is on its way; what comes "
        "is seen late by half of it. (In waits of more than 256 naps they grow.) At most 0.1. Each "
        "agent has its own.",
        shown="0.001",
    )
    log_steps: int = _setting(
        functools.partial(values.count, least=2),
        6,
        "The results of at most so many steps are kept in the op log: a snapshot is taken in time, "
        "even over its budget of time. Logs up to 256 MiB are not bounded by it. See "
        "[memory](../how-to/tuning.md#memory).",
    )
    on_divergence: str = _setting(
        functools.partial(values.choice, choices=ON_DIVERGENCE),
        ON_DIVERGENCE[0],
        "When a variable [diverges](../how-to/divergence.md), which was equal on all ranks: `warn` "
        "says so, `stop` stops the job as well, `off` compares nothing.",
        shown="`warn`",
    )
    ablate: str = _setting(
        functools.partial(values.choice, choices=ABLATIONS),
        ABLATIONS[0],
        "For measurement only. `network`: no sum leaves its node (in the flat topology, its rank), "
        "so the job trains as without a network, and the trained weights are useless; see "
        "[what the network costs](../how-to/tuning.md#what-the-network-costs). Rank 0's value "
        "counts.",
        shown="`nothing`",
    )
    message_timeout_seconds: float = _setting(
        values.seconds,
        600.0,
        "How long `ft_recv` waits for a [message](../how-to/messages.md). Make it longer than a "
        "restarted sender takes.",
    )
    checkpoint_dir: str | None = _setting(
        values.directory,
        None,
        "Directory of the job's [checkpoints](../how-to/checkpoints.md); hosts may share it, or "
        "have one each. `--checkpoint-dir` sets it.",
        shown="none: no checkpoints",
    )
    checkpoint_interval_seconds: float = _setting(
        values.seconds,
        600.0,
        "From one checkpoint to the next; `--checkpoint-interval` sets it.",
    )
    checkpoint_keep: int = _setting(
        functools.partial(values.count, least=1),
        3,
        "So many of the newest checkpoints are kept; `--checkpoint-keep` sets it.",
    )
    checkpoint_timeout_seconds: float = _setting(
        values.seconds,
        30.0,
        "How long nodes wait for each other's shares of a checkpoint; and how long the end of a "
        "job that fails waits for its latest state to be written.",
    )
    resume_dir: str | None = _setting(
        values.directory,
        None,
        "The job goes on from the newest checkpoint in this directory, or from this one; "
        "`--resume` sets it.",
        shown="none",
    )
    grace_seconds: float | None = _setting(
        values.seconds,
        None,
        "With it SIGTERM and SIGUSR1 are a preemption: all ranks take a snapshot, it becomes a "
        "checkpoint, and the job ends with code 143, after this time at the latest. `--grace` sets "
        "it.",
        shown="none: SIGTERM ends the job at once",
    )
    tuning_file: str | None = _setting(
        lambda env, name, default: env.get(name) or default,
        None,
        "The file of [tuned settings](../how-to/tune.md) that `hvdft run` takes if it fits; `off`: "
        "none. `--tuning` sets it.",
        shown="that of these hosts in `~/.config/hvd_ft/tuning`, if there is one",
    )

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Reads the settings.

        Args:
            env: environment variables, such as `os.environ`; an empty value counts as unset.

        Returns:
            The settings, each within its range.

        Raises:
            HvdFtError: names the variable, its value and what is allowed; or an unknown variable,
                and the setting that is probably meant.
        """
        env = _Read(env)
        read: dict[str, Any] = {}
        for setting in fields(cls):
            follows = setting.metadata["follows"]
            default = follows(read) if follows else setting.default
            read[setting.name] = setting.metadata["read"](env, variable(setting), default)
        settings = cls(**read)
        _refuse_unknown(env)
        check_order(settings)
        return settings

    @classmethod
    def alone(cls, env: Mapping[str, str], name: str) -> Any:
        """Reads one setting, without a look at what depends on it.

        Raises:
            HvdFtError: its value is not allowed.
        """
        [setting] = (each for each in fields(cls) if each.name == name)
        return setting.metadata["read"](env, variable(setting), setting.default)


class _Read(Mapping[str, str]):
    """An environment that records which variables were read."""

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
    """Refuses variables with a setting's prefix that are not settings."""
    settings = {name for name in env.asked - INTERNAL if name.startswith(_PREFIX)}
    for name in sorted(env):
        if name.startswith(_PREFIX) and name not in settings | INTERNAL:
            words = [setting.removeprefix(_PREFIX) for setting in settings]
            remedy = meant(name.removeprefix(_PREFIX), words, _PREFIX) or "unset it"
            raise HvdFtError(
                f"{name} is not a setting of hvd_ft: {remedy} (docs/reference/settings.md has them)"
            )
