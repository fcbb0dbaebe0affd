"""Rebuilds the snapshots that ranks of a lost node need to start on another node.

Their private parts are on their buddy's node. The data that they had shared is equal to another
rank's data; fingerprints in the parts show which arrays these are. Pure.
"""

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hvd_ft.errors import HvdFtError
from hvd_ft.worker.shared_contents import Place, groups, of_groups, unpack
from hvd_ft.worker.snapshot_format import decode


@dataclass(frozen=True)
class Donor:
    """A rank that has its snapshot of the same cut.

    Attributes:
        own: the rank's part.
        stripes: the stripes of all ranks of its node.
        place: where the snapshot was taken.
    """

    own: memoryview
    stripes: Sequence[memoryview]
    place: Place


def shared_contents(own: memoryview, donor: Donor) -> np.ndarray:
    """Rebuilds the data that a rank of a lost node had shared.

    Args:
        own: the lost rank's part.
        donor: a rank of another node.

    Returns:
        uint8, of any size: the contents of the lost node's stripes.

    Raises:
        HvdFtError: names the variable that was not equal on the donor.
    """
    about, theirs = decode(own)[1], decode(donor.own)[1]
    mine, its = of_groups(_prints(about)), of_groups(_prints(theirs))
    arrays, _ = unpack(donor.own, donor.stripes, donor.place)
    order: list[str] = about["order"]
    group_of = {at: number for number, group in enumerate(groups(len(order))) for at in group}
    out = np.zeros(about["shared_bytes"], np.uint8)
    for at, name in enumerate(order):
        entry = about["shared"].get(name)
        if entry is None:
            continue
        group = group_of[at]
        if len(its) != len(mine) or its[group] != mine[group]:
            raise HvdFtError(
                f"the variable {name} was not equal on the hosts that are left, so it is lost with "
                "its host: start the job again, from its last checkpoint"
            )
        data = np.ascontiguousarray(arrays[theirs["order"][at]]).reshape(-1).view(np.uint8)
        size = np.dtype(entry["dtype"]).itemsize * prod(entry["shape"])
        out[entry["offset"] : entry["offset"] + size] = data
    return out


def _prints(about: dict[str, Any]) -> bytes:
    return b64decode(about["prints"])
