"""A snapshot's bytes come back as they were, and nothing else is taken for one."""

import math
from typing import Any

import numpy as np
import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.worker.snapshot_format import decode, encode


def round_trip(
    arrays: dict[str, np.ndarray], values: dict[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    return decode(memoryview(b"".join(encode(arrays, values))))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(12).reshape(3, 4).T,
        np.arange(12)[::3],
        np.array(3, np.int64),
        np.zeros((0, 3), np.float16),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.array([np.nan, -0.0, np.inf]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_round_trip(array: np.ndarray) -> None:
    back = round_trip({"a": array, "b": array}, {})[0]
    for name in ("a", "b"):
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape
        np.testing.assert_array_equal(back[name], array)


def test_bfloat16_round_trips() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    back = round_trip({"a": array}, {})[0]["a"]
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()


def test_arrays_are_not_copied() -> None:
    array = np.arange(1000.0)
    parts = encode({"a": array}, {})
    assert any(np.shares_memory(np.frombuffer(part, np.uint8), array) for part in parts)
    data = np.frombuffer(b"".join(parts), np.uint8)
    assert np.shares_memory(decode(memoryview(data))[0]["a"], data)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -(2**70), "", "ö\ud800", [], {}, (), 0.1, 5e-324, -0.0, math.inf),
        [1, [2.5, {"a": (None, "x")}]],
        {"offset": 1, "dtype": "x"},
    ],
)
def test_values_round_trip(value: Any) -> None:
    back = round_trip({}, {"v": value})[1]["v"]
    assert back == value
    assert repr(back) == repr(value)


def test_nan_and_numpy_values_round_trip() -> None:
    values = {"nan": math.nan, "s": np.float32(0.1), "b": np.bool_(True), "a": [np.arange(3)]}
    back = round_trip({"x": np.ones(7)}, values)[1]
    assert math.isnan(back["nan"])
    assert (back["s"], type(back["s"])) == (np.float32(0.1), np.float32)
    assert back["b"] is np.True_
    np.testing.assert_array_equal(back["a"][0], np.arange(3))
    back["a"][0][0] = 5  # a copy, so it may be changed


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "v"),
        ({1: 2}, "v"),
        ({"a": [0, {1}]}, r"v\['a'\]\[1\]"),
        (b"bytes", "v"),
        (1j, "v"),
        (np.array(["text"]), "v"),
        (np.array([None]), "v"),
    ],
)
def test_other_values_are_refused_by_name(value: Any, named: str) -> None:
    with pytest.raises(HvdFtError, match=rf"^{named} cannot be kept"):
        encode({}, {"v": value})


def test_what_is_not_a_snapshot_is_refused() -> None:
    whole = b"".join(encode({"a": np.arange(100.0)}, {"v": 1}))
    header_end = whole.index(b"}}") + 2
    damaged = [b"", b"HVDF", bytes(100), b"x" + whole[1:], whole[:30], whole[:-200]]
    damaged += [whole.replace(b"float64", b"objects"), whole.replace(b'"shape"', b'"share"')]
    damaged.append(whole[:16] + b"[" * (header_end - 16) + whole[header_end:])
    for data in damaged:
        with pytest.raises(HvdFtError, match="not a snapshot"):
            decode(memoryview(data))
