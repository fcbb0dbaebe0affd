"""How much memory of a node a training needs, and whether that much is available. Pure.

Variables that are equal on all ranks of a node are stored once, all others once for each rank.
Before the first snapshot it is not known which are equal. The announced need assumes that all are,
which is nearly true with Horovod; the need if none are is announced with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hvd_ft.native.types import Memory
from hvd_ft.system.byte_size import in_words
from hvd_ft.system.memory_left import CGROUP, FILESYSTEM, HOST, Left
from hvd_ft.worker.snapshot_writer import LARGE_SNAPSHOT_BYTES, SLOTS

WORTH_SAYING_BYTES = 256 << 20  # a need below it is announced only if it is not met
_UNIT = 1 << 20


@dataclass(frozen=True)
class Training:
    """What is known of a training before its first snapshot.

    Attributes:
        state_bytes: bytes of one rank's variables in a snapshot.
        step_bytes: bytes of the results of a step's collectives, which are its gradients.
        begun: whether the log has the results of a step already.
        ranks: on this node.
        nodes: of the job.
        snapshot_steps: the most steps from one snapshot to the next.
    """

    state_bytes: int
    step_bytes: int
    ranks: int
    nodes: int
    snapshot_steps: int
    begun: bool = False

    @property
    def log_steps(self) -> int:
        """Steps whose results the log holds at most; a snapshot is complete in the next one."""
        return self.snapshot_steps + 1


class Need(NamedTuple):
    """The memory that a node needs, in bytes.

    Attributes:
        state: snapshots, if all variables are equal on all ranks.
        most_state: the same if none are.
        log: results of all steps since the previous snapshot.
        rest: input areas, control area, and memory that is already in use and stays so.
    """

    state: int
    most_state: int
    log: int
    rest: int

    @property
    def total(self) -> int:
        """With variables that are all equal."""
        return self.state + self.log + self.rest


class Shortage(NamedTuple):
    """A kind of memory of which there is too little.

    Attributes:
        of: `ARENA`, or a kind that `memory_left` returns.
        bytes: how many are missing.
        left: how many are available.
    """

    of: str
    bytes: int
    left: int


ARENA = "arena"


def memory_need(training: Training, memory: Memory) -> Need:
    """Computes the need of a node.

    Args:
        training: a training without a snapshot yet.
        memory: the node's memory, now.
    """
    most_state = SLOTS * training.state_bytes * training.ranks
    shared = training.state_bytes >= LARGE_SNAPSHOT_BYTES
    # Between nodes an op has a second place, for the sum of the node's own ranks.
    step = training.step_bytes * (1 if training.nodes == 1 else 2)
    return Need(
        state=SLOTS * training.state_bytes if shared else most_state,
        most_state=most_state,
        log=training.log_steps * step,
        rest=memory.input_areas
        + memory.control
        + memory.slots  # of loops that have ended
        + memory.messages
        + memory.kept
        + max(memory.log - training.begun * step, 0),  # will be kept
    )


def shortage(
    need: Need, memory: Memory, machine: Sequence[Left], arenas: int = 1
) -> Shortage | None:
    """Returns the worst shortage for a need; None if it is met.

    Args:
        need: a node's need.
        memory: the node's memory, now.
        machine: what is left of each kind of memory that the arena uses.
        arenas: number of arenas on this host, each with such a need.
    """
    found = []
    if need.total > memory.limit:
        found.append(Shortage(ARENA, need.total - memory.limit, memory.limit))
    more = arenas * max(need.total - memory.total, 0)
    for left in machine:
        if more > left.bytes:
            found.append(Shortage(left.of, more - left.bytes, left.bytes))
    return max(found, key=lambda each: each.bytes, default=None)


def announcement(training: Training, need: Need, lacks: Shortage | None, directory: str) -> str:
    """Returns the line that announces a need, as a warning if it is not met.

    Args:
        training: the training that has this need.
        need: the node's need.
        lacks: the worst shortage, or None.
        directory: the directory of the arenas.
    """
    text = (
        f"this training will need about {in_words(need.total)} of memory on this host for fault "
        f"tolerance: {in_words(need.state)} for {SLOTS} snapshots of "
        f"{in_words(need.state // SLOTS)}"
    )
    if need.most_state > need.state:
        text += (
            f" (if its {training.ranks} ranks share all variables; "
            f"{in_words(need.most_state)} if none)"
        )
    text += (
        f", {in_words(need.log)} for the results of {training.log_steps} steps, "
        f"{in_words(need.rest)} for the rest"
    )
    return text if lacks is None else f"{text}; but {_warning(need, lacks, directory)}"


def _warning(need: Need, lacks: Shortage, directory: str) -> str:
    left, missing = in_words(lacks.left), in_words(lacks.bytes)
    often = "take snapshots more often (snapshot_steps, HOROVOD_FT_LOG_STEPS)"
    more_often = often if need.log > lacks.bytes else ""
    if lacks.of == ARENA:
        wanted = -(-need.total // _UNIT)
        reason = f"the arena may take only {left}"
        remedies = [f"raise HOROVOD_FT_ARENA_BYTES to {wanted}M or more", more_often]
    elif lacks.of == FILESYSTEM:
        reason = f"{directory} has only {left} free, {missing} less than that takes"
        remedies = [
            "enlarge it (docker: --shm-size)",
            "set HOROVOD_FT_ARENA_DIR to a directory with more",
            more_often,
        ]
    else:
        whose = {HOST: "this host", CGROUP: "the control group of this job (container, Slurm)"}
        reason = f"{whose[lacks.of]} has only {left} left, {missing} less than that takes"
        remedies = [
            "start fewer ranks on this host",
            "set HOROVOD_FT_ARENA_DIR to a directory on a disk",
            more_often,
        ]
    *others, last = filter(None, remedies)
    choices = f"{', '.join(others)} or {last}" if others else last
    return f"{reason}: {choices}"
