import multiprocessing
import os
import shutil
import stat
import threading
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.job import directory as jobdir
from hvd_ft.job.directory import (
    JobDirectory,
    job_path,
    new_job_id,
    sweep_stale,
    user_path,
)

FORK = multiprocessing.get_context("fork")
TIMEOUT_SECONDS = 30


def jobs(arena_dir: Path) -> list[str]:
    return sorted(os.listdir(user_path(str(arena_dir))))


def in_processes(count: int, function: object, *arguments: object) -> None:
    """Runs the function in several processes at once; each has to end with 0."""
    processes = [FORK.Process(target=function, args=arguments) for _ in range(count)]  # type: ignore[arg-type]
    for process in processes:
        process.start()
    for process in processes:
        process.join(TIMEOUT_SECONDS)
    assert [process.exitcode for process in processes] == [0] * count


def test_everything_is_private(tmp_path: Path) -> None:
    directory = JobDirectory.create(str(tmp_path), "one")
    assert directory.path == job_path(str(tmp_path), "one")
    path = Path(directory.path)
    modes = {stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent)}
    assert modes == {0o700}
    assert stat.S_IMODE((path / "lock").stat().st_mode) == 0o600


def test_the_last_to_leave_removes_the_directory(tmp_path: Path) -> None:
    first = JobDirectory.create(str(tmp_path), "one")
    second = JobDirectory.join(first.path)
    third = JobDirectory.join(first.path)
    assert [first.leave(), second.leave()] == [False, False]
    assert jobs(tmp_path) == ["one"]
    assert third.leave()
    assert jobs(tmp_path) == []


def test_a_second_job_of_the_same_id_is_an_error(tmp_path: Path) -> None:
    JobDirectory.create(str(tmp_path), "one")
    with pytest.raises(HvdFtError, match="another job has the id one"):
        JobDirectory.create(str(tmp_path), "one")


def test_a_job_that_is_gone_cannot_be_joined(tmp_path: Path) -> None:
    with pytest.raises(HvdFtError, match="is gone"):
        JobDirectory.join(job_path(str(tmp_path), "one"))


def test_a_job_that_is_swept_while_it_is_joined_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock was opened, but its directory removed before that lock was taken."""
    path = JobDirectory.create(str(tmp_path), "one").path
    flock = jobdir.fcntl.flock

    def sweep_first(lock: int, flags: int) -> None:
        shutil.rmtree(path)
        flock(lock, flags)

    monkeypatch.setattr(jobdir.fcntl, "flock", sweep_first)
    with pytest.raises(HvdFtError, match="is gone"):
        JobDirectory.join(path)


def test_a_directory_that_is_kept_outlives_its_job(tmp_path: Path) -> None:
    first = JobDirectory.create(str(tmp_path), "one")
    second = JobDirectory.join(first.path)
    other = JobDirectory.create(str(tmp_path), "other")
    assert not first.leave(files_stay=True)
    assert second.leave()
    assert other.leave(files_stay=True)
    assert jobs(tmp_path) == ["one", "other"]
    assert sweep_stale(str(tmp_path), but="one", only="one") == []
    assert sweep_stale(str(tmp_path), only="one") == ["one"]
    assert jobs(tmp_path) == ["other"]
    assert sweep_stale(str(tmp_path)) == []  # it could be resumed, and nobody was asked
    assert sweep_stale(str(tmp_path), only="other") == ["other"]


def _die_in(arena_dir: str) -> None:
    JobDirectory.create(arena_dir, "dead")
    os._exit(0)


def test_a_sweep_removes_dead_jobs_and_no_others(tmp_path: Path) -> None:
    in_processes(1, _die_in, str(tmp_path))
    living = JobDirectory.create(str(tmp_path), "living")
    (Path(user_path(str(tmp_path))) / "halfmade").mkdir()  # its maker died before the lock
    assert sweep_stale(str(tmp_path)) == ["dead", "halfmade"]
    assert jobs(tmp_path) == ["living"]
    living.leave()


def test_a_sweep_does_not_follow_symlinks(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    arena = tmp_path / "arena"
    arena.mkdir()
    JobDirectory.create(str(arena), "one").leave()
    os.symlink(elsewhere, job_path(str(arena), "linked"))
    inside = Path(job_path(str(arena), "dead"))
    inside.mkdir()
    os.symlink(elsewhere, inside / "linked")
    os.symlink(elsewhere / "precious", inside / "file")
    assert sweep_stale(str(arena)) == ["dead"]
    assert (elsewhere / "precious").exists()


def test_a_symlink_in_place_of_the_users_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    os.symlink(tmp_path / "elsewhere", user_path(str(tmp_path)))
    with pytest.raises(HvdFtError, match="remove it or set HOROVOD_FT_ARENA_DIR"):
        JobDirectory.create(str(tmp_path), "one")
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755])
def test_a_directory_that_is_open_to_others_is_an_error(tmp_path: Path, mode: int) -> None:
    os.mkdir(user_path(str(tmp_path)))
    os.chmod(user_path(str(tmp_path)), mode)
    with pytest.raises(HvdFtError, match=f"open to others .mode {mode:04o}"):
        sweep_stale(str(tmp_path))


def test_a_foreign_directory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.geteuid()
    path = tmp_path / f"hvdft-{me + 1}"
    path.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(HvdFtError, match=f"belongs to user {me}, not to you"):
        JobDirectory.create(str(tmp_path), "one")


def test_an_arena_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HvdFtError, match="No such file"):
        JobDirectory.create(str(tmp_path / "nowhere"), "one")


def test_a_wrong_id_is_refused() -> None:
    with pytest.raises(HvdFtError, match="not a job id"):
        job_path("/tmp", "../escape")


def test_ids_differ_and_sort_by_time() -> None:
    ids = {new_job_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(name.isalnum() for name in ids)


def test_a_wait_for_the_users_lock_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobdir, "_USER_LOCK_TIMEOUT_SECONDS", 0.05)
    others = set(threading.enumerate())
    with jobdir._locked_user_directory(str(tmp_path)):
        with pytest.raises(HvdFtError, match="another hvdft process that holds the lock"):
            sweep_stale(str(tmp_path))
        waiting = set(threading.enumerate()) - others
    for thread in waiting:
        thread.join(TIMEOUT_SECONDS)


def _live(arena_dir: str, start: Barrier, rounds: int) -> None:
    """One job after the other, each started with a sweep; its directory must stay until the end."""
    start.wait(TIMEOUT_SECONDS)
    for _ in range(rounds):
        sweep_stale(arena_dir)
        directory = JobDirectory.create(arena_dir, new_job_id())
        second = JobDirectory.join(directory.path)
        Path(directory.path, "file").touch()
        assert not second.leave()
        assert os.listdir(directory.path)
        assert directory.leave()


def test_jobs_that_start_at_once_do_not_sweep_each_other(tmp_path: Path) -> None:
    in_processes(4, _live, str(tmp_path), FORK.Barrier(4), 50)
    assert jobs(tmp_path) == []


def _join_and_leave(path: str, step: Barrier) -> None:
    step.wait(TIMEOUT_SECONDS)  # the directory is there
    directory = JobDirectory.join(path)
    step.wait(TIMEOUT_SECONDS)  # all are in it
    directory.leave()


def test_of_many_that_leave_at_once_one_removes_the_directory(tmp_path: Path) -> None:
    for _ in range(10):
        step = FORK.Barrier(5)
        arguments = (job_path(str(tmp_path), "one"), step)
        processes = [FORK.Process(target=_join_and_leave, args=arguments) for _ in range(4)]
        for process in processes:
            process.start()  # before the lock's descriptor is there to be inherited
        directory = JobDirectory.create(str(tmp_path), "one")
        step.wait(TIMEOUT_SECONDS)
        step.wait(TIMEOUT_SECONDS)
        directory.leave()
        for process in processes:
            process.join(TIMEOUT_SECONDS)
        assert jobs(tmp_path) == []
