"""Which arrays can be messages, and that what is made for one has its type and shape."""

from typing import Any

import numpy as np
import pytest

from hvd_ft import p2p
from hvd_ft.errors import HvdFtError

SENT = [*"?bBhHiIlLqQefdgFDG", "<f4", "<i8", "=u2"]


@pytest.mark.parametrize("kind", SENT)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_numbers_and_bools_arrive_as_they_were(kind: str, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.dtype(kind))
    made = p2p._empty(p2p._form(array))
    assert (made.dtype, made.shape, made.nbytes) == (array.dtype, shape, array.nbytes)
    assert p2p._type_of(p2p._form(array)) == array.dtype.name


@pytest.mark.parametrize(
    "array",
    [
        *(np.zeros(2, np.dtype(kind).newbyteorder(">")) for kind in "hHiIqQefdFD"),
        np.array(["a"]),
        np.array([b"a"]),
        np.array([None]),
        np.array([1, "a"], object),
        np.zeros(2, "datetime64[s]"),
        np.zeros(2, "timedelta64[s]"),
        np.zeros(2, [("a", "f4")]),
        np.zeros(2, "V3"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_what_would_arrive_as_something_else_is_refused(array: Any) -> None:
    """The bytes alone are sent: those of another order would be other numbers."""
    with pytest.raises(HvdFtError, match="cannot be sent"):
        p2p._form(array)


@pytest.mark.parametrize("value", [-1, 2, 1.0, "1", None, 1 << 40])
def test_a_rank_that_is_none_is_refused_by_name(value: Any) -> None:
    class Worker:
        def present(self) -> list[int]:
            return [0, 3]

    worker: Any = Worker()
    assert [p2p._rank(worker, "dest", each) for each in (0, 1, np.int64(1))] == [0, 3, 3]
    with pytest.raises(HvdFtError, match=r"dest=.* is not a rank: give one from 0 to 1"):
        p2p._rank(worker, "dest", value)


@pytest.mark.parametrize("tag", [1 << 31, -(1 << 31) - 1, 1.0, "1", None])
def test_a_tag_has_32_bits(tag: Any) -> None:
    assert [p2p._tag(each) for each in (-(1 << 31), (1 << 31) - 1)] == [-(1 << 31), (1 << 31) - 1]
    with pytest.raises(HvdFtError, match="give a whole number of 32 bits"):
        p2p._tag(tag)


def test_what_cannot_be_received_into_is_refused() -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    for array in (frozen, np.zeros((4, 4))[:, 1], [0.0]):
        with pytest.raises(HvdFtError, match=r"give a numpy array|copy it"):
            p2p._check_room(array)  # type: ignore[arg-type]
    p2p._check_room(np.zeros((2, 2)))
