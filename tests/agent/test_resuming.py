"""Agents choose the checkpoint that a job continues from: again and again, on other hosts."""

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import HANG_SECONDS

from hvd_ft.agent.resuming import Resumed, resume
from hvd_ft.checkpointer.capture import Captured
from hvd_ft.checkpointer.completion import complete
from hvd_ft.checkpointer.cuts import Cut
from hvd_ft.checkpointer.origin import Origin
from hvd_ft.checkpointer.share import Began, write_share
from hvd_ft.errors import HvdFtError
from hvd_ft.native.checkpointer import Place
from hvd_ft.worker.shared_contents import Contents, freeze


def checkpoint(folder: Path, job: str, run: str, step: int, hosts: Sequence[int]) -> Path:
    """Writes one of a job that has so many ranks on each host; returns where it is."""
    size, cut, origins = sum(hosts), Cut(0, 2 * step + 1), []
    for node, count in enumerate(hosts):
        place = Place(size, len(hosts), node, sum(hosts[:node]), count)
        begun = int(job.removeprefix("job"))
        origins.append(Origin(folder, job, run, begun, place, range(len(hosts))))
    for origin in origins:
        parts = {}
        for rank in origin.place.ranks:
            kept, values = freeze({"w": np.full(9, step), "own": np.array([rank])}, {"step": step})
            parts[rank] = Captured(10 * step, Contents(kept, values.data, frozenset()))
        write_share(
            origin, cut, {cut: parts}, ([], []), range(size), began=Began.now(), await_seconds=0
        )
    complete(origins[0], cut, range(len(hosts)))
    return origins[0].path(cut)


class Meeting:
    """The agents of a job, each in a thread of its own."""

    def __init__(self, hosts: Sequence[int]) -> None:
        self.size = sum(hosts)
        self.places = [range(sum(hosts[:at]), sum(hosts[: at + 1])) for at in range(len(hosts))]
        self._barrier = threading.Barrier(self.size)
        self._told: list[Any] = [None] * self.size

    def agree(self, rank: int, step: Callable[[], object]) -> list[Any]:
        try:
            self._told[rank] = step()
        except HvdFtError as error:
            self._told[rank] = error
        self._barrier.wait(HANG_SECONDS)
        told = [*self._told]
        self._barrier.wait(HANG_SECONDS)
        for each in told:
            if isinstance(each, HvdFtError):
                raise each
        return told

    def resume(self, folders: Sequence[Path]) -> Resumed:
        """Resumes from a directory, as each host sees it; returns what all agree on."""
        found: list[Any] = [None] * self.size

        def run(rank: int) -> None:
            host = next(at for at, ranks in enumerate(self.places) if rank in ranks)
            ranks = self.places[host]
            context: Any = SimpleNamespace(
                rank=rank,
                host_ranks=ranks,
                leads_host=rank == ranks[0],
                hosts=Hosts(self.places),
                settings=SimpleNamespace(resume_dir=str(folders[host])),
            )
            meeting: Any = SimpleNamespace(
                size=self.size, agree=lambda _what, step: self.agree(rank, step)
            )
            try:
                found[rank] = resume(meeting, context)
            except HvdFtError as error:
                found[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_SECONDS)
        errors = {str(each) for each in found if isinstance(each, HvdFtError)}
        if errors:
            assert len(errors) == 1
            assert all(isinstance(each, HvdFtError) for each in found), found
            raise HvdFtError(errors.pop())
        for each in found:
            assert (each.run, each.loops) == (found[0].run, found[0].loops)
            assert Path(each.path).name == Path(found[0].path).name
        assert isinstance(found[0], Resumed)
        return found[0]


class Hosts:
    def __init__(self, places: Sequence[range]) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def ranks(self, host: int) -> range:
        return self._places[host]


def test_a_job_that_went_on_goes_on_again_and_again_on_other_hosts(tmp_path: Path) -> None:
    run = "job1"
    written = [1, 2]  # ranks on each host
    for number, hosts in enumerate([[2, 1], [1, 1, 1], [3], [2, 2], [1]], start=1):
        path = checkpoint(tmp_path, f"job{number}", run, 3 * number, written)
        for _ in range(2):  # whoever failed before it had written one of its own
            found = Meeting(hosts).resume([tmp_path] * len(hosts))
            assert found == Resumed(str(path), "job1", found.loops)
            assert list(found.loops) == [0]
        run, written = found.run, hosts


@pytest.mark.parametrize("damaged", [0, 1])
@pytest.mark.parametrize("hosts", [[2, 1], [1, 2]])
def test_each_host_checks_the_files_that_its_ranks_go_on_from(
    tmp_path: Path, hosts: list[int], damaged: int
) -> None:
    """Rank 2 has no part of its own: it continues from rank 0's."""
    folders = [tmp_path / str(host) for host in range(2)]
    folders[0].mkdir()
    path = checkpoint(folders[0], "job1", "job1", 3, [2])
    shutil.copytree(folders[0], folders[1])
    assert Meeting(hosts).resume(folders).run == "job1"
    file = folders[damaged] / path.name / "loop0-rank0.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(HvdFtError, match=r"cannot be used: .*loop0-rank0.*hvdft checkpoint verify"):
        Meeting(hosts).resume(folders)


def test_a_damaged_one_is_refused_also_if_an_older_one_is_whole(tmp_path: Path) -> None:
    older = checkpoint(tmp_path, "job1", "job1", 3, [2])
    path = checkpoint(tmp_path, "job2", "job1", 6, [2])
    file = path / "loop0-rank1.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(HvdFtError, match=r"loop0-rank1"):
        Meeting([1, 1]).resume([tmp_path] * 2)
    assert Meeting([1, 1]).resume([older] * 2).path == str(older)


def test_without_a_directory_the_job_begins_anew() -> None:
    context: Any = SimpleNamespace(settings=SimpleNamespace(resume_dir=None))
    assert resume(SimpleNamespace(), context) is None  # type: ignore[arg-type]
