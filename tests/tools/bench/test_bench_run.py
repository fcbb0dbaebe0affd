"""`hvdft bench` with real jobs of both backends; `run_hvdft` sees to it that nothing is left."""

import csv
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import RunHvdft

TWO = ("-np", "2")
# The driver takes the place of the shell, which first starts what disturbs it.
DISTURBED = 'DRIVER=$$ "$0" "$1" & shift; exec "$0" -m hvd_ft.cli "$@"'
DISTURB = """\
import os, signal, sys, time
import psutil

driver = psutil.Process(int(os.environ["DRIVER"]))


def stopped():
    # Only those that their side has stopped: what a worker forks for a moment is gone again.
    found = set()
    for process in psutil.process_iter():
        try:
            if (
                process.status() == psutil.STATUS_STOPPED
                and "hvd_ft.tools.bench.workers.allreduce" in process.cmdline()[:3]
                and driver in process.parents()
            ):
                found.add(process)
        except psutil.Error:
            continue
    return found


# When both sides have been seen stopped, they are taking turns.
workers = set()
while len(workers) < 4 and driver.is_running():
    workers |= stopped()
    time.sleep(0.05)  # only a parent is told that a process has stopped
"""

ROW = """\
import tensorflow as tf

import hvd_ft.tensorflow as hvd
from hvd_ft.tools.bench.workers import allreduce
from hvd_ft.native import abi


allreduce.prepare_tensorflow()
hvd.init()
measurement = allreduce.Measurement("float32", "sum", 3)
step, inputs = measurement._step(4), measurement._inputs(4, phase=0)
measurement._iterate(step, inputs, 3)  # by then requests have their numbers, which are noted
before = abi.library().hvdft_worker_cursor()
measurement._iterate(step, inputs, 1)
ops = abi.library().hvdft_worker_cursor() - before
if hvd.rank() == 0:
    print(f"3 tensors: {ops} ops")
hvd.shutdown()
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the driver makes its sockets; a path short enough for them."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/dev/shm"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_every_allreduce_of_a_row_takes_place(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    # TensorFlow prunes results that are never read: most of an iteration's.
    script = tmp_path / "row.py"
    script.write_text(ROW)
    ended = run_hvdft(
        ["run", *TWO, sys.executable, str(script)], env={"HOROVOD_FUSION_THRESHOLD": "0"}
    )
    assert ended.code == 0, ended.err
    assert "3 tensors: 25 ops" in ended.out  # 8 in a row of each, and the one at the end


@pytest.mark.shows(later=True)
def test_both_backends_in_one_run(run_hvdft: RunHvdft, tmp_path: Path, temporary: Path) -> None:
    table, picture = tmp_path / "a.csv", tmp_path / "a.png"
    ended = run_hvdft(
        ["bench", "allreduce", *TWO, "--max-bytes", "64K", "--factor", "64", "--iterations", "3",
         "--repeats", "2", "--copies", "--csv", str(table), "--png", str(picture)],
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "CPU: " in ended.out
    assert "16384" in ended.out
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    read = list(csv.DictReader(lines))
    assert [(line["bytes"], line["backend"]) for line in read] == [
        (str(size), side) for size in (4, 256, 16384) for side in ("ft", "mpi", "copies")
    ]
    assert {line["wrong"] for line in read} == {"0"}
    assert all(float(line["min_time_us"]) > 0 for line in read)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not list(temporary.iterdir())


def test_training_and_the_price_of_a_kill(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    table, picture = tmp_path / "t.csv", tmp_path / "t.png"
    ended = run_hvdft(
        ["bench", "training", *TWO, "--models", "digits:20", "--rounds", "1", "--backends", "ft",
         "--snapshot-steps", "4", "--csv", str(table), "--png", str(picture)],
    )  # fmt: skip
    assert ended.code == 0, ended.err
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    seconds = {(r["run"], r["backend"]): float(r["seconds"]) for r in csv.DictReader(lines)}
    assert set(seconds) == {(run, "ft") for run in ("throughput", "undisturbed", "one kill")}
    # A process has to start, which takes longer than all the steps.
    assert seconds["one kill", "ft"] > seconds["undisturbed", "ft"] + 0.5
    assert "lost by the kill" in ended.out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("driver.send_signal(signal.SIGINT)", 130),
        ("driver.kill()", -9),
        ("workers.pop().kill()", 2),
    ],
    ids=["ctrl-c", "driver killed", "worker killed"],
)
def test_nothing_is_left_however_it_ends(
    run_hvdft: RunHvdft, tmp_path: Path, temporary: Path, action: str, code: int
) -> None:
    script = tmp_path / "disturb.py"
    script.write_text(DISTURB + action + "\n")
    ended = run_hvdft(
        ["bench", "allreduce", *TWO, "--min-bytes", "64M", "--max-bytes", "64M", "--repeats", "99"],
        program=["sh", "-c", DISTURBED, sys.executable, str(script)],
    )
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err
    if code == 2:
        assert "backend failed: a worker has died" in ended.err
    if code != -9:
        assert not list(temporary.iterdir())
