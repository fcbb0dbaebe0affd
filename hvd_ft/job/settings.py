"""The user's settings: the `HOROVOD_FT_*` environment variables, checked in one place."""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.job import setting_values as values
from hvd_ft.job.binding import BIND_TO, MAP_BY
from hvd_ft.job.core_limits import core_limit
from hvd_ft.job.ports import Ports, read_ports
from hvd_ft.system.byte_size import short
from hvd_ft.system.nearest import meant

TOPOLOGIES = ("hierarchical", "flat")  # the first one is the default
ENDPOINT_CHOICES = ("auto", "1", "2", "3")  # for a node's leader; the first one is the default
ABLATIONS = ("nothing", "network")  # the first one is the default
ON_DIVERGENCE = ("warn", "stop", "off")  # the first one is the default
OUTPUT_PREFIXES = ("rank", "time", "none")  # the first one is the default of hvdft run
MINIMUM_ARENA_BYTES = 64 << 20
# Variables that are no settings: launcher, agents, workers and hook commands are given them.
INTERNAL = frozenset(
    f"HOROVOD_FT_{name}"
    for name in (
        *("JOB", "LAUNCHER", "GENERATION", "MEMBERS", "ACT_LEASE", "SHIM_STARTER", "BEGUN"),
        *("DIR", "LIBRARY", "HOMOGENEOUS", "NODE_SIZES", "CPUS", "INJECT", "STACKS", "RESUMED"),
        *("RANK", "INCARNATION", "STEP", "TIME", "SNAPSHOT_SECONDS"),
        *("EXIT_STATUS", "SECONDS_DOWN", "OPS_REPLAYED"),
    )
)
# The parts of the settings' table, in its order.
GROUPS = ("What users set", "Limits", "Network", "Transport, for experts")
_LEAST_SUSPECT_SECONDS = 2.0
_PREFIX = "HOROVOD_FT_"
_REMOVED = {
    "PIN": "set HOROVOD_FT_BIND_TO instead (none for 0, auto for 1)",
    "MESSAGE_TIMEOUT_SECONDS": "set HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS instead",
}


def _setting(
    group: str,
    read: Callable[..., Any],
    default: Any,
    meaning: str,
    *,
    shown: str | None = None,
) -> Any:
    """A field that is the variable HOROVOD_FT_<its name>.

    Args:
        group: of `GROUPS`.
        read: of `setting_values`.
        default: with an empty environment.
        meaning: for docs/reference/settings.md.
        shown: the default as it is shown there.
    """
    words = f"{default:g}" if isinstance(default, float) else f"{default}"
    told = {"group": group, "read": read, "meaning": meaning, "shown": shown or words}
    return field(default=default, metadata=told)


def _derived(default: Any, rule: Callable[[Mapping[str, Any]], Any], words: str) -> Any:
    """A field that follows from settings before it; once it could be set alone.

    Args:
        default: with an empty environment.
        rule: returns its value from those of the fields before.
        words: the rule, for whoever sets it still.
    """
    return field(default=default, metadata={"rule": rule, "words": words})


_own, _limit, _network, _transport = (partial(_setting, group) for group in GROUPS)


def variable(setting: Field[Any]) -> str:
    """Returns the name of a setting's environment variable."""
    return _PREFIX + setting.name.upper()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user may set for a job; the defaults are those of an empty environment."""

    arena_dir: str = _own(
        values.directory, "/dev/shm", "Directory of logs and snapshots.", shown="`/dev/shm`"
    )
    arena_bytes: int | None = _own(
        partial(values.byte_count, least=MINIMUM_ARENA_BYTES),
        None,
        "Limit for the whole job on this host; suffixes K, M, G.",
        shown="3/4 of what is free there",
    )
    shared_dir: str | None = _own(
        values.directory,
        None,
        "A directory shared by all hosts, in which agents find each other.",
        shown="none",
    )
    # By default only hvdft run binds: another launcher may have bound agents.
    bind_to: str = _own(
        partial(values.choice, choices=BIND_TO),
        "none",
        "What `hvdft run` binds each rank to, see [NUMA](../how-to/numa.md): `auto`, its even "
        "share of the host's CPUs, as Intel MPI does (with more ranks than CPUs only if they share "
        "them evenly); `core`, `socket` or `numa`; `none`: set it where several jobs share a host, "
        "or all would take the same CPUs. Bound threads run with `SCHED_BATCH`, so that they do "
        "not interrupt each other when woken. `--bind-to` sets it.",
        shown="what `I_MPI_PIN` and `I_MPI_PIN_DOMAIN` say, else `auto`",
    )
    map_by: str = _own(
        partial(values.choice, choices=MAP_BY),
        MAP_BY[0],
        "Where a host's ranks stand: `slot`, consecutive ones beside each other, with an even "
        "share of the CPUs each; `numa` or `socket`, in turn. `--map-by` sets it.",
        shown="`slot`",
    )
    log_steps: int = _own(
        partial(values.count, least=2),
        6,
        "The op log keeps the results of at most this many steps: a snapshot is taken in time, "
        "even over its budget of time. Logs up to 256 MiB are not bounded by it. See "
        "[memory](../how-to/tuning.md#memory).",
    )
    on_divergence: str = _own(
        partial(values.choice, choices=ON_DIVERGENCE),
        ON_DIVERGENCE[0],
        "When a variable [diverges](../how-to/divergence.md), which was equal on all ranks: `warn` "
        "says so, `stop` stops the job as well, `off` compares nothing.",
        shown="`warn`",
    )
    # By default only hvdft run marks lines: horovodrun does so itself.
    output_prefix: str = _own(
        partial(values.choice, choices=OUTPUT_PREFIXES),
        "none",
        "What `hvdft run` writes before each line that a rank prints, see [output]"
        "(../how-to/output.md): `rank`, as in `[3]<stdout>:`; `time`, the time before that; or "
        "`none`. `--no-prefix` and `--prefix-output-with-timestamp` set it.",
        shown="`rank`",
    )
    output_dir: str | None = _own(
        values.directory,
        None,
        "A copy of what rank N prints is appended to `rank.N/stdout` and `rank.N/stderr` in this "
        "directory, on the rank's host. `--output-filename` sets it.",
        shown="none",
    )
    checkpoint_dir: str | None = _own(
        values.directory,
        None,
        "Directory of the job's [checkpoints](../how-to/checkpoints.md); hosts may share it, or "
        "have one each. `--checkpoint-dir` sets it.",
        shown="none: no checkpoints",
    )
    checkpoint_interval_seconds: float = _own(
        values.seconds,
        600.0,
        "From one checkpoint to the next; `--checkpoint-interval` sets it.",
    )
    checkpoint_keep: int = _own(
        partial(values.count, least=1),
        3,
        "The job keeps this many of the newest checkpoints; `--checkpoint-keep` sets it.",
    )
    resume_dir: str | None = _own(
        values.directory,
        None,
        "The job continues from the newest checkpoint in this directory, or from this one; "
        "`--resume` sets it.",
        shown="none",
    )
    grace_seconds: float | None = _own(
        values.seconds,
        None,
        "With it SIGTERM and SIGUSR1 are a preemption: all ranks take a snapshot, it becomes a "
        "checkpoint, and the job ends with code 143, after this time at the latest. `--grace` sets "
        "it.",
        shown="none: SIGTERM ends the job at once",
    )
    tuning_file: str | None = _own(
        lambda env, name, default: env.get(name) or default,
        None,
        "The file of [tuned settings](../how-to/tune.md) that `hvdft run` takes if it fits; `off`: "
        "none. `--tuning` sets it.",
        shown="that of these hosts in `~/.config/hvd_ft/tuning`, if there is one",
    )
    max_failures: int = _limit(
        partial(values.count, zero="never restart"),
        3,
        "This many failures of one rank, or of agents, are survived …",
    )
    failure_window_seconds: float = _limit(
        values.seconds, 300.0, "… within this time; one more stops the job."
    )
    recovery_timeout_seconds: float = _limit(
        values.seconds,
        600.0,
        "A rank that died must be back within this time. `ft_recv` waits for a "
        "[message](../how-to/messages.md) as long.",
    )
    replay_timeout_seconds: float = _derived(
        60.0,
        lambda of: max(
            min(60.0, of["recovery_timeout_seconds"] / 2), of["recovery_timeout_seconds"] / 10
        ),
        "60, at most half and at least a tenth of HOROVOD_FT_RECOVERY_TIMEOUT_SECONDS",
    )
    start_timeout_seconds: float = _limit(
        values.seconds,
        120.0,
        "All agents must have met within this time. Workers whose agents have died wait for new "
        "ones for half of it.",
    )
    adoption_timeout_seconds: float = _derived(
        60.0, lambda of: of["start_timeout_seconds"] / 2, "half of HOROVOD_FT_START_TIMEOUT_SECONDS"
    )
    hang_timeout_seconds: float | None = _limit(
        values.seconds,
        None,
        "A worker that does nothing for this time while others wait for it is killed and "
        "restarted. Make it longer than the longest time between two collectives of a healthy "
        "rank; multiplied by `HOROVOD_FT_MAX_FAILURES` it must be less than the failure window.",
        shown="off",
    )
    snapshot_timeout_seconds: float = _derived(
        30.0,
        lambda of: min(30.0, (of["hang_timeout_seconds"] or math.inf) / 2),
        "30, at most half of HOROVOD_FT_HANG_TIMEOUT_SECONDS",
    )
    stall_warning_seconds: float = _limit(
        partial(values.seconds, zero="no warning"),
        30.0,
        "A rank that keeps others waiting for this time is named, with its Python stack; 0: never.",
    )
    stop_grace_seconds: float = _limit(
        values.seconds,
        10.0,
        "How long scripts may continue after the user's Ctrl-C, to save what they have.",
    )
    checkpoint_timeout_seconds: float = _limit(
        values.seconds,
        30.0,
        "How long nodes wait for each other's shares of a checkpoint; and how long the end of a "
        "job that fails waits for its latest state to be written.",
    )
    lease_seconds: float = _limit(
        values.seconds,
        20.0,
        "A host that has not answered for this time is lost, and waited for; it is named after a "
        "quarter of it. A link between two nodes that delivers nothing for 1.5 times as long is "
        "broken: new agents are started. An agent or a shim "
        "that has been silent for this time is killed and replaced.",
    )
    suspect_seconds: float = _derived(
        5.0,
        lambda of: max(of["lease_seconds"] / 4, _LEAST_SUSPECT_SECONDS),
        "a quarter of HOROVOD_FT_LEASE_SECONDS, 2 or more",
    )
    link_timeout_seconds: float = _derived(
        30.0, lambda of: of["lease_seconds"] * 1.5, "1.5 times HOROVOD_FT_LEASE_SECONDS"
    )
    host_timeout_seconds: float = _limit(
        values.seconds,
        300.0,
        "How long a lost host is waited for. Then the job ends and its state stays; see "
        "[time-outs](../timeouts.md).",
    )
    fence_seconds: float = _limit(
        values.seconds,
        4.5,
        "In a job with [spare hosts](../how-to/spare-hosts.md): a host that has not answered for "
        "this time is replaced. Its own processes have been stopped by then: they act for two "
        "thirds of this time without hearing of the launcher. With "
        "[`--min-np`](../how-to/resize.md): it is done without, and fenced in the same way.",
    )
    interface: str | None = _network(
        lambda env, name, default: env.get(name) or default,
        None,
        "In a job on several hosts: the network interface of the launcher's host on which "
        "`hvdft run` and mpirun listen, such as `eth0`; `all`: on all of them. (MPI's own choice, "
        "for what agents send each other, is `FI_TCP_IFACE`; `--network-interface` sets both.)",
        shown="that of the host's name; if this means loopback, the one towards the other hosts",
    )
    ports: Ports | None = _network(  # noqa: RUF009  (Ports is frozen)
        read_ports,
        None,
        "In a job on several hosts: the range of TCP ports, such as `40000-40099`, in which "
        "`hvdft run`, mpirun and MPI over TCP listen; `--ports` sets it. The launcher takes one, "
        "mpirun one a host, MPI up to six a rank.",
        shown="any free ports",
    )
    topology: str = _transport(
        partial(values.choice, choices=TOPOLOGIES),
        TOPOLOGIES[0],
        "`hierarchical` or `flat`, see [topology](../how-to/tuning.md#topology); `--topology` sets "
        "it.",
        shown="`hierarchical`",
    )
    endpoints: str = _transport(
        partial(values.choice, choices=ENDPOINT_CHOICES),
        ENDPOINT_CHOICES[0],
        "MPI endpoints of the agent that speaks for its node. `3`: a thread and an endpoint each "
        "for sending, for receiving and for what nodes tell each other (the one that receives has "
        "another for small ops). `2`: one for the ring, one for what nodes tell each other. `1`: "
        "one for everything. "
        "`auto`: 3 where every host has a CPU for each of its ranks and for these three. Rank 0's "
        "value counts; the job says at its start which it uses, and why if only one.",
        shown="`auto`",
    )
    connections: int = _transport(
        partial(values.count, least=1, most=core_limit("MOST_CONNECTIONS")),
        1,
        "Connections between the agents of neighbouring nodes, each with an endpoint, over which "
        "the messages of large ops take turns: 1 to 8. More than one where a single connection "
        "cannot fill the link ([several connections](../how-to/tuning.md#several-connections)). "
        "With fewer than 3 threads there is one. The same on all hosts.",
    )
    transfers: int = _transport(
        partial(values.count, least=1, most=core_limit("MOST_TRANSFERS")),
        core_limit("TRANSFERS"),
        "Messages of large ops that may be under way over a connection at a time, in each "
        "direction: 1 to 16. Each agent has its own.",
    )
    nodes_below: int = _transport(
        partial(values.count, least=1, most=core_limit("MOST_RANKS")),
        32,
        "What nodes tell each other (how their ranks fare, what the op log has) goes over a tree "
        "with rank 0's node on top: at most this many nodes are joined to the one above them. Rank "
        "0's value counts.",
    )
    gather_bytes: int = _transport(
        partial(values.byte_count, least=1, most=256 << 10, zero="none is gathered"),
        16 << 10,
        "Between N nodes, ops of up to this many bytes are gathered, which takes log2(N) hops; "
        "larger ones go round the ring, in 2(N - 1) hops that carry fewer bytes. See [small "
        "ops](../how-to/tuning.md#small-ops). At most 256K; 0: none is gathered. Rank 0's value "
        "counts.",
        shown="16K",
    )
    ring_segment_bytes: int = _transport(
        partial(
            values.byte_count,
            least=core_limit("LEAST_RING_SEGMENT"),
            most=core_limit("MOST_RING_SEGMENT"),
        ),
        core_limit("RING_SEGMENT"),
        "Between nodes larger ops travel the ring in messages of this many bytes: while one is "
        "received, the one before is added, and the one before that sent on. From 16K to 1M. Rank "
        "0's value counts; the op log has it for each op.",
        shown="256K",
    )
    node_segment_bytes: int = _transport(
        partial(
            values.byte_count,
            least=core_limit("LEAST_NODE_SEGMENT"),
            most=core_limit("MOST_NODE_SEGMENT"),
            power=True,
        ),
        core_limit("NODE_SEGMENT"),
        "The ranks of a node sum large ops this many bytes at a time: while a segment is summed, "
        "the next one is copied in. A power of two from 16K to 512K. Rank 0's value counts; the op "
        "log has it for each op.",
        shown="128K",
    )
    node_window_bytes: int = _transport(
        partial(
            values.byte_count,
            least=core_limit("LEAST_NODE_WINDOW"),
            most=core_limit("MOST_NODE_WINDOW"),
            power=True,
        ),
        core_limit("NODE_WINDOW"),
        "How far a rank may be ahead of the others of its node: so much of large ops is copied in "
        "before it is summed, and each rank takes so much memory. A power of two from 256K to 16M, "
        "2 to 128 times `HOROVOD_FT_NODE_SEGMENT_BYTES`. Rank 0's value counts, when the job "
        "starts; the same for all nodes and generations.",
        shown="1M",
    )
    yield_seconds: float = _transport(
        partial(values.seconds, zero="no yielding", most=1.0),
        core_limit("YIELD_NS") / 1e9,
        "Between nodes: how long an agent's threads that wait for MPI only yield the CPU, before "
        "they nap between two looks. At most 1; 0: they nap at once. Each agent has its own.",
        shown="0.00005",
    )
    nap_seconds: float = _transport(
        partial(values.seconds, most=core_limit("MOST_NAP_NS") / 1e9),
        core_limit("NAP_NS") / 1e9,
        "Between nodes: how long such a nap is at most, while something is on its way; what comes "
        "is seen late by half of it. (In waits of more than 256 naps they grow.) At most 0.1. Each "
        "agent has its own.",
        shown="0.001",
    )
    ablate: str = _transport(
        partial(values.choice, choices=ABLATIONS),
        ABLATIONS[0],
        "For measurement only. `network`: no sum leaves its node (in the flat topology, its rank), "
        "so the job trains as without a network, and the trained weights are useless; see "
        "[what the network costs](../how-to/tuning.md#what-the-network-costs). Rank 0's value "
        "counts.",
        shown="`nothing`",
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
                and the setting that is probably meant; or one that is no setting any more.
        """
        read: dict[str, Any] = {}
        for each in fields(cls):
            rule = each.metadata.get("rule")
            read[each.name] = rule(read) if rule else _value(each, env)
        settings = cls(**read)
        _refuse_unknown(env)
        _check_order(settings)
        return settings

    @classmethod
    def alone(cls, env: Mapping[str, str], name: str) -> Any:
        """Reads one setting, without a look at what depends on it.

        Raises:
            HvdFtError: its value is not allowed.
        """
        return _value(variables()[_PREFIX + name.upper()], env)


def variables() -> dict[str, Field[Any]]:
    """Returns the settings' fields, by their environment variables."""
    return {variable(each): each for each in fields(Settings) if "read" in each.metadata}


def _value(setting: Field[Any], env: Mapping[str, str]) -> Any:
    return setting.metadata["read"](env, variable(setting), setting.default)


def _refuse_unknown(env: Mapping[str, str]) -> None:
    """Refuses variables with a setting's prefix that are not settings."""
    known = variables()
    removed = {variable(each): each.metadata for each in fields(Settings)}
    if "HOROVOD_FT_DIR" in env:  # in a worker, which is told some of these by its agent
        env = {name: value for name, value in env.items() if name not in removed}
    for name in sorted(env):
        if not name.startswith(_PREFIX) or name in known or name in INTERNAL:
            continue
        word = name.removeprefix(_PREFIX)
        if word in _REMOVED:
            why = f" any more: {_REMOVED[word]}, and unset this"
        elif name in removed:
            why = f" any more: it is {removed[name]['words']}; set that, and unset this"
        else:
            words = [setting.removeprefix(_PREFIX) for setting in known]
            why = f" of hvd_ft: {meant(word, words, _PREFIX) or 'unset it'}"
        raise HvdFtError(f"{name} is not a setting{why} (docs/reference/settings.md has them)")


def _check_order(settings: Settings) -> None:
    """Checks that settings that depend on each other fit together."""
    lease, host = settings.lease_seconds, settings.host_timeout_seconds
    if not settings.suspect_seconds < lease < host:
        raise HvdFtError(
            f"HOROVOD_FT_LEASE_SECONDS is {lease:g} and HOROVOD_FT_HOST_TIMEOUT_SECONDS {host:g}: "
            f"a silent host is suspect after {settings.suspect_seconds:g} s, then lost, then given "
            "up, so give the first one more than that, and less than the second"
        )
    if settings.grace_seconds and not settings.checkpoint_dir:
        raise HvdFtError(
            f"HOROVOD_FT_GRACE_SECONDS (--grace) is {settings.grace_seconds:g}, but there is no "
            "directory for the checkpoint: give --checkpoint-dir, or HOROVOD_FT_CHECKPOINT_DIR"
        )
    segment, window = settings.node_segment_bytes, settings.node_window_bytes
    fewest = core_limit("LEAST_SEGMENTS_OF_WINDOW")
    most = core_limit("MOST_SEGMENTS_OF_WINDOW")
    if not fewest * segment <= window <= most * segment:
        low = max(fewest * segment, core_limit("LEAST_NODE_WINDOW"))
        high = min(most * segment, core_limit("MOST_NODE_WINDOW"))
        raise HvdFtError(
            f"HOROVOD_FT_NODE_WINDOW_BYTES is {short(window)} and HOROVOD_FT_NODE_SEGMENT_BYTES "
            f"{short(segment)}: a window holds {fewest} to {most} segments, so give the first one "
            f"{short(low)} to {short(high)}"
        )
    hang, failures = settings.hang_timeout_seconds, settings.failure_window_seconds
    if hang and hang * settings.max_failures >= failures:
        raise HvdFtError(
            f"HOROVOD_FT_HANG_TIMEOUT_SECONDS is {hang:g}, so {settings.max_failures} hangs "
            f"take longer than HOROVOD_FT_FAILURE_WINDOW_SECONDS, {failures:g}, and a worker "
            "that always hangs would be restarted for ever: give the window more"
        )
