"""What ranks that share a snapshot store, and what they read back."""

import itertools
import random

import ml_dtypes
import numpy as np
import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.native.core import MAX_FINGERPRINT_BYTES
from hvd_ft.worker.shared_contents import (
    MAX_GROUPS,
    MIN_SHARED_BYTES,
    Part,
    Place,
    agreement,
    differing,
    fingerprints,
    freeze,
    groups,
    shared,
    stripe,
    unpack,
)
from hvd_ft.worker.shared_contents import contents as read_contents

LARGE = MIN_SHARED_BYTES + 1000
PLACE = Place(3, 100)


def contents(rank: int) -> dict[str, np.ndarray]:
    """Weights that are equal on all ranks, and a statistic that is not."""
    return {
        "0:weights": np.arange(LARGE, dtype=np.float32),
        "1:statistic": np.full(LARGE, rank, np.float64),
        "2:empty": np.zeros((0, 3)),
        "3:half": np.arange(LARGE).astype(ml_dtypes.bfloat16).reshape(2, -1),
        "4:step": np.array(7),
    }


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_rank_reads_back_what_it_had(ranks: int) -> None:
    frozen = [freeze(contents(rank), {"rank": rank}) for rank in range(ranks)]
    prints = [fingerprints(arrays, 3, 100) for arrays, _ in frozen]
    differ = differing(prints)
    assert differ == ({1} if ranks > 1 else set())
    common = ["0:weights", "3:half"]
    slots = []
    for rank, (arrays, values) in enumerate(frozen):
        part = Part(arrays, values, common, rank, ranks, prints=prints[rank])
        room = np.full(part.bytes, 0xAA, np.uint8)
        for _ in part.write(room):
            pass
        slots.append((room.data, room[part.stripe :].data))
    for rank in range(ranks):
        arrays, values = unpack(slots[rank][0], [data for _, data in slots], PLACE)
        assert values == {"rank": rank}
        assert list(arrays) == list(contents(rank))
        for name, array in contents(rank).items():
            np.testing.assert_array_equal(arrays[name], array)
            assert arrays[name].dtype == array.dtype


def shared_by_two() -> list[np.ndarray]:
    """The slots of two ranks; the stripe of each begins where its own part ends."""
    frozen = [freeze(contents(rank), {"rank": rank}) for rank in range(2)]
    slots = []
    for rank, (arrays, values) in enumerate(frozen):
        prints = fingerprints(arrays, 3, 100)
        part = Part(arrays, values, ["0:weights", "3:half"], rank, 2, prints=prints)
        slots.append(np.zeros(part.bytes, np.uint8))
        for _ in part.write(slots[-1]):
            pass
        assert part.stripe == STRIPE
    return slots


STRIPE = -(-(LARGE * 8 + 2000) // 4096) * 4096


def read(slots: list[np.ndarray], place: Place = PLACE) -> dict[str, np.ndarray]:
    """What rank 1 reads; arrays in copies."""
    arrays, values = unpack(slots[1].data, [slot[STRIPE:].data for slot in slots], place)
    assert values == {"rank": 1}
    return {name: np.array(array) for name, array in arrays.items()}


def test_a_flipped_bit_is_found_or_in_nothing_that_is_read() -> None:
    slots, chance = shared_by_two(), random.Random(1)
    whole, found = read(slots), 0
    # The header is small, so some are made for it.
    places = [(1, at) for at in range(0, 2000, 3)]
    places += [(rank, chance.randrange(slots[rank].size)) for rank in (0, 1) for _ in range(100)]
    for rank, at in places:
        bit = 1 << chance.randrange(8)
        slots[rank][at] ^= bit
        try:
            again = read(slots)
            assert all(again[name].tobytes() == whole[name].tobytes() for name in whole)
        except HvdFtError:
            found += 1
        slots[rank][at] ^= bit
    assert found > 0.7 * len(places)  # rank 1 does not read what is rank 0's own


@pytest.mark.parametrize(
    ("rank", "at", "named"),
    [
        (0, STRIPE + 5, "the variable 0:weights is not as it was written"),
        (1, STRIPE - 5000, "the variable 1:statistic is not as it was written"),
        (1, 100, "not a snapshot of this version of hvd_ft, or it is damaged"),
    ],
    ids=["shared", "own", "header"],
)
def test_what_is_damaged_is_named(rank: int, at: int, named: str) -> None:
    slots = shared_by_two()
    slots[rank][at] ^= 4
    with pytest.raises(HvdFtError, match=named):
        read(slots)


def test_a_damaged_array_among_the_values_is_found() -> None:
    kept, values = freeze({}, {"drawn": np.full(50, 77)})
    part = Part(kept, values, [], 0, 1, prints=fingerprints(kept, 3, 100))
    room = np.zeros(part.bytes, np.uint8)
    for _ in part.write(room):
        pass
    room[room.tobytes().index(np.full(50, 77).tobytes()) + 8] ^= 1
    with pytest.raises(HvdFtError, match="its values are not as they were written"):
        unpack(room.data, [], PLACE)


def test_one_rank_s_look_at_what_is_shared_is_enough() -> None:
    slots = shared_by_two()
    stripes = [slot[STRIPE:].data for slot in slots]
    slots[0][STRIPE + 5] ^= 4
    read_contents(slots[1].data, stripes, PLACE, check_shared=False)
    slots[1][STRIPE - 5000] ^= 4
    with pytest.raises(HvdFtError, match="1:statistic"):
        read_contents(slots[1].data, stripes, PLACE, check_shared=False)


@pytest.mark.parametrize("place", [Place(5, 100), Place(3, 101)], ids=["cut", "position"])
def test_that_of_another_boundary_is_not_taken_for_it(place: Place) -> None:
    with pytest.raises(HvdFtError, match="it is not that of cut"):
        read(shared_by_two(), place)


def test_what_is_shared_is_stored_once() -> None:
    arrays, values = freeze({"w": np.zeros(1 << 22, np.uint8)}, {})
    prints = fingerprints(arrays, 3, 100)
    parts = [Part(arrays, values, ["w"], rank, 4, prints=prints) for rank in range(4)]
    assert sum(part.bytes for part in parts) < (1 << 22) + 4 * 8192


@pytest.mark.parametrize("size", [0, 1, 4096, 10_000_000])
@pytest.mark.parametrize("count", [1, 3, 16])
def test_stripes_are_all_of_it(size: int, count: int) -> None:
    ends = [stripe(size, number, count) for number in range(count)]
    assert ends[0][0] == 0
    assert ends[-1][1] == size
    assert all(one[1] == two[0] for one, two in itertools.pairwise(ends))


def test_an_array_that_changes_on_one_rank_is_seen() -> None:
    before, after = contents(0), contents(0)
    after["0:weights"][12345 % LARGE] += 1
    kept = [fingerprints(each, 1, 5) for each in (before, after)]
    assert differing(kept) == {0}
    assert agreement(kept) != agreement([kept[0], kept[0]])
    assert differing([kept[0], kept[0]]) == set()


@pytest.mark.parametrize("other", [(2, 5), (1, 6)], ids=["cut", "position"])
def test_ranks_at_different_boundaries_share_nothing(other: tuple[int, int]) -> None:
    arrays = contents(0)
    assert differing([fingerprints(arrays, 1, 5), fingerprints(arrays, *other)]) is None


def test_other_variables_are_not_compared() -> None:
    arrays = contents(0)
    fewer = {name: array for name, array in arrays.items() if name != "4:step"}
    assert differing([fingerprints(arrays, 1, 5), fingerprints(fewer, 1, 5)]) is None


def test_names_may_differ() -> None:
    """Horovod gives the rank's number to some variables of a graph."""
    arrays = contents(0)
    renamed = {name.replace("weights", "weights_1"): array for name, array in arrays.items()}
    assert differing([fingerprints(arrays, 1, 5), fingerprints(renamed, 1, 5)]) == set()


def test_what_is_small_may_change_afterwards() -> None:
    arrays = contents(0)
    kept, values = freeze(arrays, {"list": [1, 2]})
    arrays["4:step"] += 1
    assert kept["4:step"] == 7
    part = Part(kept, values, [], 0, 1, prints=fingerprints(kept, 3, 100))
    room = np.zeros(part.bytes, np.uint8)
    for _ in part.write(room):
        pass
    assert unpack(room.data, [], PLACE)[1] == {"list": [1, 2]}


def test_a_stripe_that_is_too_short_is_told() -> None:
    arrays, values = freeze(contents(0), {})
    part = Part(arrays, values, ["0:weights"], 0, 2, prints=fingerprints(arrays, 3, 100))
    room = np.zeros(part.bytes, np.uint8)
    for _ in part.write(room):
        pass
    with pytest.raises(HvdFtError, match="too short"):
        unpack(room.data, [room.data[:10], room.data[:10]], PLACE)


@pytest.mark.parametrize("count", [0, 1, 4, 5, 8, 9, 100])
def test_every_array_is_in_one_group(count: int) -> None:
    found = groups(count, most=4)
    assert len(found) <= 4
    assert [number for group in found for number in group] == list(range(count))
    assert count > 4 or all(len(group) == 1 for group in found), "alone as long as there is room"


def test_as_many_fingerprints_as_there_is_room_for() -> None:
    arrays = {f"{number}": np.array([number]) for number in range(2 * MAX_GROUPS + 1)}
    assert (
        MAX_FINGERPRINT_BYTES - 16
        < len(fingerprints(dict(list(arrays.items())[:MAX_GROUPS]), 1, 5))
        <= MAX_FINGERPRINT_BYTES
    )
    assert len(fingerprints(arrays, 1, 5)) <= MAX_FINGERPRINT_BYTES


@pytest.mark.parametrize("changed", range(7))
def test_a_group_differs_when_one_of_its_arrays_does(changed: int) -> None:
    before = {f"{number}": np.full(10, number) for number in range(7)}
    after = {name: array.copy() for name, array in before.items()}
    after[f"{changed}"][3] += 1
    kept = [fingerprints(each, 1, 5, most=3) for each in (before, after)]
    assert differing(kept) == {changed // 3}


def test_large_arrays_of_equal_groups_are_shared() -> None:
    sizes = [LARGE, LARGE, 10, LARGE, LARGE, 10, LARGE]
    arrays = {f"{number}": np.zeros(size, np.uint8) for number, size in enumerate(sizes)}
    assert shared(arrays, {1}, most=3) == ["0", "1", "6"]
    assert shared(arrays, {3, 6}) == ["0", "1", "4"]
