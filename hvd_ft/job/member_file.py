"""Records in a job's directory to which membership its files belong, once they are complete.

A host that takes a place in a later generation makes its files anew. So does a host that comes back
to its place after another host had it: the directory that it finds then belongs to an older epoch.
"""

import os

from hvd_ft.errors import HvdFtError
from hvd_ft.members.membership import Membership
from hvd_ft.system.whole_file import write_line

_NAME = "members"


def write_members(directory: str, members: Membership) -> None:
    """Records in a job's directory that its files are complete, and belong to this membership.

    This needs no additional memory, of which there may be none left.

    Args:
        directory: of the job, on this host.
        members: of the agents' generation.

    Raises:
        HvdFtError: it cannot be written.
    """
    if read_members(directory) == members:
        return
    path = os.path.join(directory, _NAME)
    try:
        write_line(path, str(members))
    except OSError as error:
        raise HvdFtError(
            f"{path} cannot be written ({error.strerror}): free memory in that directory"
        ) from error


def read_members(directory: str) -> Membership | None:
    """Returns the membership that a job's directory was last complete for; None if there is none.

    Args:
        directory: of the job, on this host; it need not exist.
    """
    try:
        path = os.path.join(directory, _NAME)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="ascii") as file:
            return Membership.parse(file.readline().rstrip("\n"))
    except (OSError, ValueError):
        return None


def is_current(directory: str, members: Membership, rank: int) -> bool:
    """Returns whether a job's directory has the complete files of the host that has this rank now.

    Otherwise there is no directory, or it belongs to a host that has lost its place since, or the
    files were never completed.

    Args:
        directory: of the job, on this host.
        members: the present membership.
        rank: any rank of this host.
    """
    found = read_members(directory)
    if found is None or len(found.places) != len(members.places):
        return False
    number = members.place_of(rank)
    return found.places[number].since == members.places[number].since
