"""Files of checkpoints are safetensors, which any reader of these reads."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from hvd_ft.checkpoint.catalogue import hash_file
from hvd_ft.checkpoint.contents import RankArrays, of_node, of_rank
from hvd_ft.checkpoint.manifest import Part
from hvd_ft.checkpoint.tensors import Tensors, write_tensors
from hvd_ft.errors import HvdFtError

ARRAYS = {
    "a/kernel:0": np.arange(12, dtype=np.float32).reshape(3, 4),
    "byte": np.array([1, 2, 3], np.uint8),
    "scalar": np.array(7, np.int64),
    "bool": np.array([True, False]),
    "empty": np.zeros((0, 5), np.float64),
    "turned": np.arange(6, dtype=np.int16).reshape(2, 3).T,
}


def test_the_library_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    file = write_tensors(path, ARRAYS, {"of": "nobody"})
    assert file == hash_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    read = load_file(path)
    mine = Tensors(path)
    assert mine.metadata == {"of": "nobody"}
    assert set(read) == set(mine) == set(ARRAYS)
    for name, array in ARRAYS.items():
        for found in (read[name], mine[name]):
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(found, array)


def test_types_that_numpy_does_not_know(tmp_path: Path) -> None:
    arrays = {
        "half": np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16),
        "complex": np.array([[1 + 2j]]),
    }
    write_tensors(tmp_path / "x", arrays, {})
    read = Tensors(tmp_path / "x")
    for name, array in arrays.items():
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
        assert read[name].tobytes() == array.tobytes()


def test_a_file_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    with pytest.raises(FileExistsError):
        write_tensors(tmp_path / "x", ARRAYS, {})
    assert (tmp_path / "x").read_text() == "mine"


def test_what_is_no_such_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x00" * 50)
    for name in ("x", "missing"):
        with pytest.raises(HvdFtError, match=f"{name} cannot be read .*hvdft checkpoint verify"):
            Tensors(tmp_path / name)


def test_a_ranks_arrays_come_from_several_files(tmp_path: Path) -> None:
    """Under its own names, in its order; a node's file counts before that of the first node."""
    order, others = ["0:a", "1:b", "2:c_1", "3:d"], ["0:a", "1:b", "2:c_0", "3:d"]
    values = np.frombuffer(b"values", np.uint8)
    write_tensors(tmp_path / "own", *of_rank({"0:a": np.ones(1)}, values, order))
    write_tensors(tmp_path / "node", *of_node({"2:c_0": np.ones(2)}, others))
    shared = {"2:c_0": np.zeros(2), "1:b": np.ones(3), "3:d": np.ones(4)}
    write_tensors(tmp_path / "first", *of_node(shared, others))
    part = Part(1, 0, 3, 7, 40, ["own", "node", "first"])
    arrays = RankArrays(tmp_path, part)
    assert list(arrays) == order
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "0:a": [1.0],
        "1:b": [1.0] * 3,
        "2:c_1": [1.0] * 2,
        "3:d": [1.0] * 4,
    }
    assert bytes(arrays.frozen_values) == b"values"
    with pytest.raises(HvdFtError, match=r"lacks 1:b of rank 1"):
        RankArrays(tmp_path, Part(1, 0, 3, 7, 40, ["own", "node"]))


def rank_arrays(path: Path) -> None:
    """Reads all of a rank's file."""
    arrays = RankArrays(path.parent, Part(0, 0, 3, 7, 40, [path.name]))
    dict(arrays)
    bytes(arrays.frozen_values)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"order": "[1]"},
        {"order": "[" * 100_000},
        {"order": '{"half": 0}'},
        {"order": '["half"]', "dtypes": "[]"},
        {"order": '["half"]', "dtypes": '{"half": ["no_type", [2]]}'},
        {"order": '["half"]', "dtypes": '{"half": ["finfo", [2]]}'},
        {"order": '["half"]', "dtypes": '{"half": ["object", [2]]}'},
        {"order": '["half"]', "dtypes": '{"half": ["float32", [7]]}'},
        {"order": '["half"]', "dtypes": '{"half": ["float32", [-1, 0]]}'},
    ],
)
def test_a_damaged_file_of_a_rank_is_named(tmp_path: Path, metadata: dict[str, str]) -> None:
    data = {"half": np.ones(4, np.uint8), "hvd_ft.values": np.ones(3, np.uint8)}
    write_tensors(tmp_path / "x.safetensors", data, metadata)
    with pytest.raises(HvdFtError, match=r"x\.safetensors cannot be read .*checkpoint verify"):
        rank_arrays(tmp_path / "x.safetensors")


def test_a_file_without_values_is_named(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {}, {"order": "[]"})
    with pytest.raises(HvdFtError, match="lacks the values of rank 0"):
        rank_arrays(tmp_path / "x")
