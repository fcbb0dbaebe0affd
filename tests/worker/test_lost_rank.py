"""What ranks of a lost node had shared is put together from what a rank elsewhere has."""

import numpy as np
import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.worker.lost_rank import Donor, shared_contents
from hvd_ft.worker.shared_contents import Part, Place, fingerprints, freeze, unpack

Arrays = dict[str, np.ndarray]
LARGE = 40_000
PLACE = Place(15, 99)


def variables(rank: int, *, local: float = 0.0) -> Arrays:
    """Names have the rank's number, as some of Horovod's; `own` is the rank's."""
    return {
        f"0:r{rank}/kernel": np.arange(LARGE, dtype=np.float32),
        f"1:r{rank}/own": np.full(LARGE, rank, np.float32),
        f"2:r{rank}/small": np.arange(9.0),
        f"3:r{rank}/slot": np.arange(LARGE, dtype=np.float64) * 3 + local,
    }


def part(
    rank: int, number: int, count: int, shared: list[int], arrays: Arrays
) -> tuple[memoryview, int]:
    """A rank's slot: what is its own, then its stripe."""
    kept, values = freeze(arrays, {"step": 7})
    names = [list(arrays)[at] for at in shared]
    prints = fingerprints(kept, 15, 99)
    made = Part(kept, values, names, number, count, prints=prints)
    room = np.zeros(made.bytes, np.uint8)
    for _ in made.write(room):
        pass
    return memoryview(room.tobytes()), made.stripe


def donor(arrays: list[Arrays], shared: list[int]) -> Donor:
    slots = [part(rank, rank, len(arrays), shared, each) for rank, each in enumerate(arrays)]
    (own, at), stripes = slots[0], [data[stripe:] for data, stripe in slots]
    return Donor(own[:at], stripes, PLACE)


@pytest.mark.parametrize("count", [1, 3])
def test_it_is_what_the_lost_ranks_stripes_have_held(count: int) -> None:
    """The nodes have other numbers of ranks, so other stripes."""
    lost = variables(5)
    own, at = part(5, 0, 1, [0, 3], lost)
    found = shared_contents(own[:at], donor([variables(rank) for rank in range(count)], [0, 3]))
    arrays, values = unpack(own[:at], [found.data], PLACE)
    assert values == {"step": 7}
    for name, array in lost.items():
        np.testing.assert_array_equal(arrays[name], array)


def test_the_donor_may_have_it_as_its_own() -> None:
    own, at = part(5, 0, 1, [0, 3], variables(5))
    found = shared_contents(own[:at], donor([variables(0), variables(1)], [0]))
    arrays, _ = unpack(own[:at], [found.data], PLACE)
    np.testing.assert_array_equal(arrays["3:r5/slot"], lost_slot())


def lost_slot() -> np.ndarray:
    return variables(5)["3:r5/slot"]


def test_what_the_donor_has_not_had_equal_is_named() -> None:
    own, at = part(5, 0, 1, [0, 3], variables(5, local=1.0))
    with pytest.raises(HvdFtError, match="the variable 3:r5/slot was not equal on the hosts"):
        shared_contents(own[:at], donor([variables(0)], [0, 3]))
