"""How workers end: by themselves, too early, or with last words. Real jobs of two ranks."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from conftest import Ended, RunHvdft

from hvd_ft.mpi.environment import mpi_environment

SCRIPT = """\
import os, signal, sys, time
import hvd_ft.tensorflow as hvd
import tensorflow as tf
from hvd_ft import native

rank = int(os.environ["HOROVOD_RANK"])
incarnation = int(os.environ["HOROVOD_FT_INCARNATION"])


def reduce(name):
    return float(hvd.allreduce(tf.ones([2]), op=hvd.Sum, name=name)[0])


def until_other_is_done():
    observer, worker, seen = native.Observer(os.environ["HOROVOD_FT_DIR"]), native.worker(), 0
    while observer.status(1 - rank).state is not native.State.DONE:
        worker.wait_event(seen, 60_000)
        seen = worker.event_count


{before}
hvd.init()
reduce("first")
{body}
"""


def run(
    run_hvdft: RunHvdft,
    folder: Path,
    body: str,
    before: str = "",
    env: dict[str, str] | None = None,
) -> Ended:
    script = folder / "job.py"
    script.write_text(SCRIPT.format(before=before, body=body))
    return run_hvdft(["run", "-np", "2", sys.executable, str(script)], env=env)


@pytest.mark.shows
@pytest.mark.parametrize(
    ("before", "body", "op"),
    [
        ("", "if rank == 0: reduce('second')", "op 1, 'ALLREDUCE sum float32 [2] "),
        ("", "if rank == 1: os._exit(0)\nreduce('second')", "op 1, 'ALLREDUCE sum float32 [2] "),
        ("if rank == 1: sys.exit()", "", "op 0, 'ALLREDUCE sum float32 [2] "),
    ],
    ids=["one collective fewer", "os._exit", "before init"],
)
def test_a_rank_that_ends_while_others_wait_is_an_error(
    run_hvdft: RunHvdft, tmp_path: Path, before: str, body: str, op: str
) -> None:
    ended = run(run_hvdft, tmp_path, body, before)
    assert ended.code == 1
    assert f"hvdft: rank 1 has ended, but rank 0 waits for it in {op}" in ended.err
    assert "restarting" not in ended.err
    assert "Traceback" not in ended.err


def test_the_coordinator_may_be_the_one_that_ends(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    ended = run(run_hvdft, tmp_path, "if rank == 1: reduce('second')")
    assert ended.code == 1
    assert "hvdft: rank 0 has ended, but rank 1 waits for it in op 1" in ended.err
    assert "restarting" not in ended.err


def test_a_rank_that_shuts_down_and_stays_is_an_error(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    body = "if rank == 1:\n    hvd.shutdown()\n    signal.pause()\nreduce('second')"
    ended = run(run_hvdft, tmp_path, body)
    assert ended.code == 1
    assert "rank 1 has called hvd.shutdown(), but rank 0 waits for it in op 1" in ended.err


def test_an_exit_code_counts_more_than_who_waits(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    ended = run(run_hvdft, tmp_path, "if rank == 1: sys.exit(3)\nreduce('second')")
    assert ended.code == 3
    assert "hvdft: the worker of rank 1 ended with exit code 3" in ended.err


def test_an_end_that_takes_long_is_not_taken_for_a_rank_that_stays(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    # Longer than a rank may stay after hvd.shutdown(); handlers registered first run last.
    before = "import atexit; atexit.register(time.sleep, 4)"
    ended = run(run_hvdft, tmp_path, "if rank == 1: sys.exit(3)\nreduce('second')", before)
    assert ended.code == 3
    assert "hvdft: the worker of rank 1 ended with exit code 3" in ended.err


@pytest.mark.parametrize("victim", [0, 1])
def test_who_dies_after_the_others_are_done_comes_back(
    run_hvdft: RunHvdft, tmp_path: Path, victim: int
) -> None:
    body = f"""
total = reduce("second")
if rank == {victim} and incarnation == 0:
    until_other_is_done()
    os.kill(os.getpid(), signal.SIGKILL)
os.write(1, f"TOTAL {{total}} {{incarnation}}\\n".encode())
"""
    ended = run(run_hvdft, tmp_path, body)
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["TOTAL 2.0 0", "TOTAL 2.0 1"]
    assert f"hvdft: rank {victim} died (signal 9, SIGKILL)" in ended.err
    assert f"hvdft: rank {victim} is back" in ended.err


def test_ranks_may_end_and_begin_again_at_different_times(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    body = """
hvd.shutdown()
if rank == 1: time.sleep(3.5)  # longer than the grace for a rank that has left
hvd.init()
total = reduce("second")
if rank == 1 and incarnation == 0: os.kill(os.getpid(), signal.SIGKILL)
if rank == 1: until_other_is_done()
os.write(1, f"TOTAL {total}\\n".encode())
if rank == 0: os._exit(0)
"""
    ended = run(run_hvdft, tmp_path, body)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == ["TOTAL 2.0"] * 2
    assert "hvdft: rank 1 has" not in ended.err


LOOP = "if rank == 1: raise ValueError(f'bad batch in incarnation {incarnation}')\nreduce('second')"


@pytest.mark.shows
def test_the_last_words_of_a_crash_loop(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    ended = run(run_hvdft, tmp_path, LOOP, env={"HOROVOD_FT_MAX_FAILURES": "1"})
    assert ended.code == 1
    [line] = [line for line in ended.err.splitlines() if "rank 1 failed 2 times" in line]
    assert "at step 0: ValueError: bad batch in incarnation 1 (" in line
    assert re.search(r"job\.py:\d+\) \(exit code 1\);", line)


def test_the_last_words_of_a_signal(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    # The last words of incarnation 0 are not those of incarnation 1.
    body = """
if rank == 1 and incarnation == 0: open("/no/such/file")
if rank == 1: os.kill(os.getpid(), signal.SIGSEGV)
"""
    ended = run(run_hvdft, tmp_path, body, env={"HOROVOD_FT_MAX_FAILURES": "1"})
    assert ended.code == 128 + signal.SIGSEGV
    assert "the last time at step 0: signal 11, SIGSEGV; what it has printed, if" in ended.err


def test_the_last_words_before_init(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    ended = run(run_hvdft, tmp_path, "", 'if rank == 1: open("/no/such/file")')
    assert ended.code == 1
    assert "ended with exit code 1 before hvd.init(): FileNotFoundError: [Errno 2] No" in ended.err


@pytest.mark.shows
def test_horovodrun_gives_a_code_that_is_not_0(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(before="raise KeyError('x')", body=""))
    bin_folder = Path(sys.executable).parent
    ended = run_hvdft(
        ["-np", "2", str(bin_folder / "hvdft"), "agent", sys.executable, str(script)],
        env={
            **mpi_environment(),
            "HOROVOD_FT_MAX_FAILURES": "0",
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
        },
        program=[str(bin_folder / "horovodrun")],
    )
    assert ended.code != 0
    assert "KeyError: 'x' (" in ended.err + ended.out
