"""What the driver sees of a job besides its life-lines, in the words of the machine. Pure."""

from dataclasses import dataclass

from hvd_ft.members.hosts import Host


@dataclass(frozen=True)
class WorkersSeen:
    """What this host's shared memory tells of the job's workers.

    Attributes:
        begun: how many have called hvd.init(); None: that is not known here.
        train: whether every rank is beyond its first step: before that there is no state.
    """

    begun: int | None = None
    train: bool = False


@dataclass(frozen=True)
class MpirunSeen:
    """The present mpirun.

    Attributes:
        pid: its process id; 0: there is none.
        stopped: whether a signal has stopped it, or a process of its own on this host.
    """

    pid: int = 0
    stopped: bool = False


@dataclass(frozen=True)
class HostChange:
    """A running job is to get other hosts.

    Attributes:
        why: in words.
        size: its number of ranks there.
        withdrawn: the hosts without which it would do, if that is all.
        added: the hosts that it would have besides its present ones, if that is all.
    """

    why: str
    size: int
    withdrawn: tuple[str, ...] = ()
    added: tuple[Host, ...] = ()
