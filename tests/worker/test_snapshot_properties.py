"""What holds for every snapshot, looked for by hypothesis."""

import contextlib
import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hvd_ft.errors import HvdFtError
from hvd_ft.worker.snapshot_format import decode, encode

DTYPES = st.sampled_from(
    [
        np.dtype(name)
        for name in ("bool", "uint8", "int16", "int64", "float16", "float32", "complex64")
    ]
)
ARRAY = arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUE = st.recursive(
    PLAIN | ARRAY,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    """Returns whether two values are the same to the bit, and of the same types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    both_nan = isinstance(one, float) and math.isnan(one) and math.isnan(other)
    return both_nan or bool(one == other)


def written(kept: dict[str, np.ndarray], values: dict[str, Any]) -> bytes:
    return b"".join(encode(kept, values))


@given(st.dictionaries(st.text(), ARRAY, max_size=3), st.dictionaries(st.text(), VALUE, max_size=3))
def test_what_is_read_is_what_was_written(
    kept: dict[str, np.ndarray], values: dict[str, Any]
) -> None:
    got_arrays, got_values = decode(memoryview(written(kept, values)))
    assert same(got_arrays, kept) and same(got_values, values)


@given(
    st.dictionaries(st.text(max_size=3), VALUE, max_size=2),
    st.integers(0, 300),
    st.binary(max_size=8),
)
def test_a_damaged_snapshot_is_refused_in_one_line(
    values: dict[str, Any], place: int, other: bytes
) -> None:
    data = bytearray(written({"a": np.arange(3)}, values))
    place = min(place, len(data))
    for damaged in (data[:place], data[:place] + other + data[place + len(other) :]):
        with contextlib.suppress(HvdFtError):
            decode(memoryview(bytes(damaged)))
