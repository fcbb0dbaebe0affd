"""The file in which agents find each other."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.job.peer_file import PeerFile

SIZE = 8


def meet_all(folder: Path, generation: int) -> list[list[str]]:
    def meet(rank: int) -> list[str]:
        file = PeerFile(str(folder), "job1")
        return file.meet(generation, rank, SIZE, f"{rank} in {generation}", 30)

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(meet, range(SIZE)))


def test_all_meet_in_each_generation(tmp_path: Path) -> None:
    for generation in range(3):
        expected = [f"{rank} in {generation}" for rank in range(SIZE)]
        assert meet_all(tmp_path, generation) == [expected] * SIZE
    file = tmp_path / "hvdft-job1.peers"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    content = json.loads(file.read_text())
    assert (content["job"], content["generation"]) == ("job1", 2)
    PeerFile(str(tmp_path), "job1").remove()
    assert list(tmp_path.iterdir()) == []


def test_who_comes_from_an_older_generation_is_turned_away(tmp_path: Path) -> None:
    meet_all(tmp_path, 4)
    with pytest.raises(HvdFtError, match="has agents of generation 4; this one is of generation 3"):
        PeerFile(str(tmp_path), "job1").meet(3, 0, SIZE, None, 30)


def test_what_is_old_is_never_taken_for_new(tmp_path: Path) -> None:
    meet_all(tmp_path, 1)
    with pytest.raises(HvdFtError, match=r"waited 0\.1 s for rank 0, 1, 3, 4, 5, 6, 7 in "):
        PeerFile(str(tmp_path), "job1").meet(2, 2, SIZE, None, 0.1)


@pytest.mark.parametrize(
    "left",
    [
        *("", "{", "[]", '{"job": "other", "generation": 9, "ranks": {}}', "[" * 100_000, "\0"),
        '{"job": "job1", "generation": 1e999, "ranks": {}}',
        '{"job": "job1", "generation": 0, "ranks": {"x": [7]}}',
    ],
)
def test_what_is_not_ours_is_overwritten(tmp_path: Path, left: str) -> None:
    (tmp_path / "hvdft-job1.peers").write_text(left)
    (tmp_path / "hvdft-job1.peers.new").write_text("torn")
    assert PeerFile(str(tmp_path), "job1").meet(0, 0, 1, [1], 30) == [[1]]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_is_not_writable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(HvdFtError, match="Permission denied"):
        PeerFile(str(tmp_path), "job1").meet(0, 0, 1, None, 30)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HvdFtError, match="No such file or directory"):
        PeerFile(str(tmp_path / "none"), "job1").meet(0, 0, 1, None, 30)
