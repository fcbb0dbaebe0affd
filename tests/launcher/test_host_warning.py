"""What `hvdft run` says of this host's limits before a job starts."""

import socket
from typing import NoReturn

import pytest

from hvd_ft.doctor.facts import Limits
from hvd_ft.launcher import host_warning
from hvd_ft.launcher.host_warning import ranks_here, warn_of_limits, warning
from hvd_ft.launcher.job import Job, resolve
from hvd_ft.members.hosts import Host

MIB = 1 << 20
WELL = Limits(ranks=4, cpus=2, memory=4096 * MIB, arena=4096 * MIB)
LITTLE = Limits(4, cpus=2, memory=4096 * MIB, group_memory=512 * MIB, cpu_quota=0.5)


def test_nothing_is_said_of_a_host_that_has_enough() -> None:
    assert warning(WELL) == ""  # there are more ranks than CPUs, as in many a test


def test_one_line_says_the_worst() -> None:
    line = warning(LITTLE)
    assert line.startswith("warning: the control group has 512 MiB of memory left, and 4 ranks")
    assert line.endswith(" (1 more: hvdft check -np 4)")
    assert "\n" not in line
    alone = warning(Limits(4, cpus=2, memory=4096 * MIB, cpu_quota=0.5))
    assert "more:" not in alone


@pytest.mark.parametrize(
    ("hosts", "ranks"),
    [
        ([], 5),
        ([Host("elsewhere", 9)], 0),
        ([Host("elsewhere", 2), Host(socket.gethostname(), 2), Host("localhost", 4)], 3),
        ([Host("localhost", 2), Host("elsewhere", 3)], 2),
    ],
)
def test_the_ranks_of_this_host_count(hosts: list[Host], ranks: int) -> None:
    assert ranks_here(Job(5, ["true"], hosts=hosts)) == ranks


def test_it_is_said_before_a_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def read(ranks: int, arena_dir: str) -> Limits:
        asked.append((ranks, arena_dir))
        return LITTLE

    monkeypatch.setattr(host_warning, "read_limits", read)
    resolved = resolve(Job(4, ["true"], given={"HOROVOD_FT_ARENA_DIR": "/dev/shm/x"}))
    warn_of_limits(resolved)
    assert asked == [(4, "/dev/shm/x")]
    assert capsys.readouterr().err.startswith("hvdft: warning: the control group has 512 MiB")
    warn_of_limits(resolve(Job(4, ["true"], machine_file="m", hosts=[Host("n1", 4)])))
    assert len(asked) == 1  # no rank is here


def test_what_cannot_be_read_keeps_no_job_from_starting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(ranks: int, arena_dir: str) -> NoReturn:
        raise FileNotFoundError(arena_dir)

    monkeypatch.setattr(host_warning, "read_limits", fail)
    warn_of_limits(resolve(Job(4, ["true"])))
    assert capsys.readouterr().err == ""
