"""A change of a job's hosts in its running processes, if that can be."""

from enum import Enum, auto

from hvd_ft.launcher.host_watch import HostWatch
from hvd_ft.launcher.job_members import JobMembers
from hvd_ft.launcher.watchers import HostChange, Resizing
from hvd_ft.native.observer import Observer
from hvd_ft.native.types import Left


class Done(Enum):
    """What became of a change."""

    YES = auto()  # new agents have to be started
    NOT_YET = auto()  # ranks have not left yet that are to return
    NO = auto()  # the job has to go on from a checkpoint


def change_in_place(
    change: HostChange,
    members: JobMembers,
    hosts: HostWatch,
    resizing: Resizing,
    job: Observer,
) -> Done:
    """Changes the hosts of a running job.

    Args:
        change: that is due.
        members: of the job.
        hosts: the watch over them.
        resizing: is told of it.
        job: shows the running job.
    """
    if change.withdrawn and members.withdraw(change.withdrawn):
        resizing.left(change.withdrawn, lost=False)
        return Done.YES
    taken = members.fitting(change.added) if change.added else None
    if taken is None:
        return Done.NO
    found = {at: {job.left(rank) for rank in members.members.places[at].ranks} for at in taken}
    if any(Left.FOR_GOOD in each for each in found.values()):
        return Done.NO
    left = [at for at, each in found.items() if each == {Left.MAY_RETURN}]
    if not members.refill(taken, left, hosts):
        return Done.NOT_YET
    resizing.joined(change.added)
    return Done.YES
