"""Pairs of faults: what happens to a job, when, and what has to come of it.

**The rule.** The second fault strikes as soon as the recovery from the first can be seen; of cheap
ones also later, when the job trains again. Then

- if neither of the two ends a job (`Fault.ends`), the job ends with code 0, and every rank has what
  it would have had without any of that, bit for bit: with the same ranks in each step, where these
  have changed (arithmetic.py);
- otherwise the job ends with the code of one that does (0 is no such code), and `--resume DIR` goes
  on from its checkpoint to that result.

In each case no process and no file is left. What stays is the state of a job that a lost host has
ended (`Fault.keeps`), until `hvdft clean --yes` removes it, and what a launcher that is killed has
in HOROVOD_FT_SHARED_DIR (`Fault.abandons`).

**What cannot be paired.** Each fault happens in a setting (`Setting`). A job has one: with a
discovery script there is no `-H`, so no spare host; where there is a spare host a lost one is not
waited for. Where two faults need different settings there is no such pair.
"""

import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pair_job import HOSTS, NODES, SLOTS, PairJob, until

from hvd_ft.checkpoint.catalogue import find

PREEMPTED, KILLED, GAVE_UP = 128 + signal.SIGTERM, 128 + signal.SIGKILL, 1
NAMED = ",".join(f"{host}:{slots}" for host, slots in HOSTS.items())


class Setting(Enum):
    """What a job may do when a host is lost: flags of `hvdft run`, and where that is."""

    SPARE_HOSTS = "spare hosts"
    IN_PLACE = "in place"
    WAITS = "waits"

    @property
    def node(self) -> str:
        # Where a launcher may be lost without rank 0, or where ranks cannot leave.
        return "n2" if self is Setting.SPARE_HOSTS else "n0"

    def flags(self, job_hosts: str) -> list[str]:
        if self is Setting.SPARE_HOSTS:
            return ["-H", NAMED, "--spare-hosts", f"n3:{SLOTS},n4:{SLOTS}"]
        if self is Setting.IN_PLACE:
            return ["--host-discovery-script", f"cat {job_hosts}", "--min-np", "1", "--in-place"]
        return ["-H", NAMED]


@dataclass(frozen=True)
class Fault:
    """Something that happens to a job.

    Attributes:
        name: of it.
        strike: has it happen; if it has ended the job, or another launcher has it, that is over
            when this returns.
        seen: of these the launcher says one when the recovery from it is under way.
        needs: the setting in which it can happen; None: in any.
        ends: the code with which a job ends to which it happens; None: the job does not end.
        keeps: whether the state of such a job stays.
        abandons: whether nobody is left who would remove the record of the job's launcher.
        heal: what is to be done when the other one has happened, too.
        first: whether it can only come first.
        cheap: whether the job soon trains again.
        limits: settings with which it takes less time.
    """

    name: str
    strike: Callable[[PairJob], None]
    seen: tuple[str, ...] = ()
    needs: Setting | None = None
    ends: int | None = None
    keeps: bool = False
    abandons: bool = False
    heal: Callable[[PairJob], None] | None = None
    first: bool = False
    cheap: bool = False
    limits: Mapping[str, str] = field(default_factory=dict)


def _signal(
    kind: str, ranks: Sequence[int], number: signal.Signals, count: int = 1
) -> Callable[[PairJob], None]:
    return lambda job: job.strike(kind, ranks, count, number)


# ---------------------------------------------------------------- hosts


def places(job: PairJob) -> list[str]:
    """Returns the hosts of the job's places by now, one for each host at the beginning."""
    now = [*HOSTS]
    for launch in job.launches:
        for lost, new in re.findall(r"host (\w+) is lost; its .* on (\w+)", launch.err):
            now = [new if host == lost else host for host in now]
    return now


def _victim(job: PairJob) -> str:
    """Returns a host of the job that may be lost: not rank 0's, not the launcher's."""
    return next(
        host for host in places(job)[1:] if host != job.node and host not in (*job.dead, "n0")
    )


def _lose_host(job: PairJob) -> None:
    job.fault("kill", _victim(job))


def _lose_and_return(job: PairJob) -> None:
    host, since = _victim(job), len(job.now.lines)
    job.fault("cut", host)
    job.now.awaits([f"host {host} is lost; its"], since)
    job.fault("heal", host)


def _cut_and_heal(job: PairJob) -> None:
    host, since = _victim(job), len(job.now.lines)
    job.fault("cut", host)
    job.now.awaits(["waiting for it until"], since)
    job.fault("heal", host)


def _named(job: PairJob) -> list[str]:
    return job.hosts_file.read_text().split()


def _name(job: PairJob, hosts: Sequence[str]) -> None:
    """Has the discovery script name these, at once."""
    new = job.hosts_file.with_suffix(".new")
    new.write_text("".join(f"{host}\n" for host in hosts))
    new.rename(job.hosts_file)


def begin(job: PairJob) -> None:
    """Prepares what the flags of a setting name."""
    _name(job, NAMED.split(","))


def _withdraw_host(job: PairJob) -> None:
    gone = next(host for host in _named(job)[1:] if host.split(":")[0] not in job.dead)
    _name(job, [host for host in _named(job) if host != gone])


def _find_host(job: PairJob) -> None:
    names = [host.split(":")[0] for host in _named(job)]
    _name(job, [*_named(job), f"{'n4' if 'n3' in names else 'n3'}:{SLOTS}"])


# ---------------------------------------------------------------- launchers, checkpoints


def _preempt(job: PairJob) -> None:
    job.strike("launcher", [0], 1, signal.SIGTERM)


def _lose_launchers_host(job: PairJob) -> None:
    """And another launcher takes the job over, if the job has not ended."""
    over = job.over
    job.fault("kill", job.node)
    job.ended()
    if not over:
        found = re.search(r"hvdft: job (\w+): ", job.launches[0].err)
        assert found
        job.launch("--resume", found[1], node="n1" if "n1" in places(job) else "n0")


def await_checkpoint(job: PairJob) -> None:
    """Waits until the job could continue from a checkpoint of all its ranks."""
    folder = job.checkpoints
    until(
        lambda: folder.is_dir() and any(each.state == "complete" for each in find(folder)),
        "a checkpoint",
    )


def go_on(job: PairJob) -> None:
    """Resumes a job that has ended from its checkpoints, on hosts that are alive."""
    hosts = dict(HOSTS)
    spare = iter([node for node in NODES if node not in (*HOSTS, *job.dead)])
    named = [f"{host if host not in job.dead else next(spare)}:{n}" for host, n in hosts.items()]
    flags = ["-H", ",".join(named), "--resume", str(job.checkpoints)]
    job.launch(flags=flags, node=named[0].split(":")[0])
    job.trains()


def _resume(job: PairJob) -> None:
    """Has the job be one that was preempted and went on from its checkpoint."""
    _preempt(job)
    assert job.ended() == PREEMPTED, job.told()
    job.launch("--resume", str(job.checkpoints))
    job.trains()


def _partial(job: PairJob) -> set[str]:
    return {path.name for path in job.checkpoints.glob(".*.partial")}


def _hold_checkpoint(job: PairJob) -> None:
    """Holds a checkpoint up: a node's share of it does not come."""
    until(lambda: job.over or job.checkpoints.is_dir(), "the checkpoint directory")
    before = _partial(job) if not job.over else set()
    job.strike("checkpointer", [3, 1, 0], 1, signal.SIGSTOP)
    until(lambda: job.over or _partial(job) - before, "a checkpoint that is not complete")


def _let_checkpoint(job: PairJob) -> None:
    for process in job.of_kind("checkpointer").values():
        process.send_signal(signal.SIGCONT)


# ---------------------------------------------------------------- all of them

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
AGENTS = ("; starting generation",)
FAULTS = [
    Fault("worker-killed", _signal("worker", [2, 3, 1, 0], KILL), (" died (",), cheap=True),
    Fault("agent-killed", _signal("agent", [1, 3, 0], KILL), AGENTS, cheap=True),
    Fault("agents-killed", _signal("agent", [1, 2, 3, 0], KILL, 2), AGENTS, cheap=True),
    Fault("shim-killed", _signal("shim", [2, 3, 1, 0], KILL), ("takes its place",), cheap=True),
    Fault("mpirun-killed", _signal("mpirun", [0], KILL), AGENTS, cheap=True),
    Fault("agent-stopped", _signal("agent", [1, 3, 0], STOP), ("is stopped: it has not",)),
    Fault("shim-stopped", _signal("shim", [2, 3, 1, 0], STOP), ("was stopped, so it was killed",)),
    Fault("mpirun-stopped", _signal("mpirun", [0], STOP), (") was stopped for",)),
    Fault("checkpoint", _hold_checkpoint, heal=_let_checkpoint),
    Fault("resumed", _resume, first=True),
    Fault("preempted", _preempt, ("preempted: a checkpoint is written",), ends=PREEMPTED),
    Fault("launcher-killed", _signal("launcher", [0], KILL), ends=KILLED, abandons=True),
    Fault("host-lost", _lose_host, (" is lost; its",), Setting.SPARE_HOSTS, cheap=True),
    Fault("host-returns", _lose_and_return, ("has lost its place",), Setting.SPARE_HOSTS),
    Fault("launcher-host-lost", _lose_launchers_host, (" is lost; its",), Setting.SPARE_HOSTS),
    Fault(
        "host-leaves",
        _lose_host,
        ("until it leaves", "until they leave"),
        Setting.IN_PLACE,
        cheap=True,
    ),
    Fault("host-withdrawn", _withdraw_host, (" less); starting",), Setting.IN_PLACE),
    Fault("host-found", _find_host, (" more); starting", " more): continuing"), Setting.IN_PLACE),
    Fault("host-silent", _cut_and_heal, ("answers again after",), Setting.WAITS),
    Fault(
        "host-gone",
        _lose_host,
        ("waiting for it until",),
        Setting.WAITS,
        ends=GAVE_UP,
        keeps=True,
        limits={"HOROVOD_FT_HOST_TIMEOUT_SECONDS": "15"},
    ),
]


@dataclass(frozen=True)
class Pair:
    """Two faults, one after the other."""

    first: Fault
    second: Fault
    later: bool = False  # whether the job trains again before the second one

    @property
    def name(self) -> str:
        return f"{self.first.name}+{self.second.name}{'-later' if self.later else ''}"

    @property
    def setting(self) -> Setting:
        return self.first.needs or self.second.needs or Setting.SPARE_HOSTS


def pairs() -> Iterator[Pair]:
    for first in FAULTS:
        for second in FAULTS:
            fits = None in (first.needs, second.needs) or first.needs is second.needs
            if fits and not second.first:
                yield Pair(first, second)
                if first.cheap and second.cheap:
                    yield Pair(first, second, later=True)
