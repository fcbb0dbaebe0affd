"""What a worker says to an arena that is not its own, and what happens when there is no room."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import RunHvdft

from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.reports.report import read_report
from hvd_ft.worker.snapshot_writer import LARGE_SNAPSHOT_BYTES

LIMIT = 1 << 30
ATTACH = "from hvd_ft import native; native.worker()"


@pytest.fixture
def job(arena_dir: Path) -> Path:
    """The directory of a job with two ranks."""
    native.create_node(str(arena_dir), "mine", 2, LIMIT)
    for rank in range(2):
        native.create_rank(str(arena_dir), "mine", rank, LIMIT)
    return arena_dir


def attach(job: Path, script: str = ATTACH, **changes: str) -> str:
    """Attaches a worker of rank 1 in a process of its own; returns the last line it said."""
    environment = {
        **os.environ,
        "HOROVOD_FT_DIR": str(job),
        "HOROVOD_FT_JOB": "mine",
        "HOROVOD_RANK": "1",
        "HOROVOD_FT_INCARNATION": "0",
        **changes,
    }
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, env=environment, check=False, timeout=60, capture_output=True, text=True
    )
    return ended.stderr.strip().rpartition("\n")[2]


def change(path: Path, offset: int, value: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(value)


def test_a_worker_attaches_to_its_own_arena(job: Path) -> None:
    assert attach(job) == ""


def test_an_arena_of_another_job(job: Path) -> None:
    assert "belongs to job 'mine', not to 'other'" in attach(job, HOROVOD_FT_JOB="other")


def test_an_arena_of_another_version(job: Path) -> None:
    change(job / "node.arena", 8, b"\x63")
    assert "has layout version 99" in attach(job)


def test_a_file_that_is_no_arena(job: Path) -> None:
    change(job / "rank-1.arena", 0, b"x")
    assert "rank-1.arena is not an arena of hvd_ft" in attach(job)


def test_an_arena_of_another_user(job: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a file to another user needs root")
    os.chown(job / "node.arena", 12345, -1)
    assert "belongs to user 12345" in attach(job)


def test_an_arena_that_others_may_read(job: Path) -> None:
    (job / "node.arena").chmod(0o644)
    assert "with mode 644" in attach(job)


def test_an_arena_of_another_rank(job: Path) -> None:
    (job / "rank-0.arena").replace(job / "other")
    (job / "rank-1.arena").replace(job / "rank-0.arena")
    (job / "other").replace(job / "rank-1.arena")
    assert "belongs to rank 1, not 0" in attach(job)


def test_no_arena_at_all(job: Path) -> None:
    (job / "rank-1.arena").unlink()
    assert "rank-1.arena cannot be opened" in attach(job)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HOROVOD_RANK", "x"), ("HOROVOD_RANK", "7"), ("HOROVOD_FT_INCARNATION", "-1")],
)
def test_an_environment_that_no_agent_made(job: Path, variable: str, value: str) -> None:
    assert f"{variable}={value}" in attach(job, **{variable: value})


def test_files_are_private(job: Path) -> None:
    assert {path.stat().st_mode & 0o777 for path in job.iterdir()} == {0o600}


def test_too_small_a_limit(arena_dir: Path) -> None:
    with pytest.raises(HvdFtError, match="too small"):
        native.create_node(str(arena_dir), "mine", 2, 1 << 20)


WRITE = """\
from hvd_ft import native
worker = native.worker()
worker.loop_begin(0)
worker.snapshot_begin(0, 1, 0)
worker.snapshot_room(0, 1000)[:] = b"x" * 1000
worker.snapshot_deliver(0, native.Snapshot(1, 0, 1000))
worker.snapshot_begin(0, 2, 0)
try:
    worker.snapshot_room(0, 40 << 20)
finally:
    assert bytes(worker.snapshot_read(0)[1]) == b"x" * 1000
"""


def test_a_full_filesystem_is_told_and_spoils_nothing(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=60m", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a filesystem of a known size needs the right to mount one")
    try:
        native.create_node(str(tmp_path), "mine", 2, LIMIT)
        for rank in range(2):
            native.create_rank(str(tmp_path), "mine", rank, LIMIT)
        (tmp_path / "filler").write_bytes(bytes(20 << 20))
        said = attach(tmp_path, WRITE)
        assert attach(tmp_path, REFUSED) == "0"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert "the next snapshot needs 40 MiB more, but the arena's filesystem gives none" in said


TAKE = """\
import os, signal
import numpy as np
from hvd_ft import native
from hvd_ft.reports.report import read_report
from hvd_ft.worker.snapshot_writer import LARGE_SNAPSHOT_BYTES, Cut, SnapshotWriter
worker = native.worker()
worker.loop_begin(0)

class Dying(native.Worker):
    def snapshot_deliver(self, loop, snapshot):
        os.kill(os.getpid(), signal.SIGKILL)

for number, letter in enumerate((b"a", b"b", b"c", b"d"), 1):
    writer = SnapshotWriter(Dying() if letter == b"d" else worker)
    array = np.frombuffer(letter * LARGE_SNAPSHOT_BYTES, np.uint8)
    writer.write(Cut(0, number, alone=True), {"array": array}, {})
    writer.settle()
"""
LOOK = """\
import sys
from hvd_ft import native
from hvd_ft.worker.shared_contents import Place, unpack
worker = native.worker()
worker.loop_begin(0)
about, own = worker.snapshot_read(0)
data = bytes(unpack(own, [], Place(about.cut, about.position))[0]["array"])
print(len(data), data[:1], len(set(data)), file=sys.stderr)
"""


def test_a_kill_before_a_snapshot_is_published_leaves_the_older_one(job: Path) -> None:
    attach(job, TAKE)
    assert attach(job, LOOK) == f"{LARGE_SNAPSHOT_BYTES} b'c' 1"
    assert native.Observer(str(job)).snapshots(1).count == 3


REFUSED = """\
import os, sys
from hvd_ft import native
from hvd_ft.errors import NoRoomError
worker = native.worker()
worker.loop_begin(0)
view = native.Observer(os.environ["HOROVOD_FT_DIR"])
before = view.used_bytes
for _ in range(3):
    try:
        worker.snapshot_begin(0, 2, 0)
        worker.snapshot_room(0, 80 << 20)
    except NoRoomError:
        pass
print(view.used_bytes - before, file=sys.stderr)
"""


def test_memory_that_is_refused_is_not_counted(arena_dir: Path) -> None:
    native.create_node(str(arena_dir), "mine", 2, 64 << 20)
    for rank in range(2):
        native.create_rank(str(arena_dir), "mine", rank, 64 << 20)
    assert attach(arena_dir, REFUSED) == "0"


def test_agents_of_an_older_generation_get_no_arena(job: Path) -> None:
    newer = native.Agent(str(job), "mine", 1, 3)
    with pytest.raises(HvdFtError, match="agents of generation 3 have taken this job over from"):
        native.Agent(str(job), "mine", 1, 2)
    native.Agent(str(job), "mine", 0, 3).close()
    newer.close()


FILL = """\
import hvd_ft.tensorflow as hvd
import tensorflow as tf

hvd.init()
for i in range(40):
    hvd.allreduce(tf.ones([1 << 20]), name="x")  # 4 MiB each, and no snapshot is ever taken
"""


def test_reaching_the_limit_is_told_before_anything_is_lost(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    script = tmp_path / "fill.py"
    script.write_text(FILL)
    ended = run_hvdft(
        ["run", "-np", "2", sys.executable, str(script)], env={"HOROVOD_FT_ARENA_BYTES": "96M"}
    )
    assert ended.code == 1
    complaints = [line for line in ended.err.splitlines() if "take snapshots more often" in line]
    assert len(complaints) == 1, ended.err
    assert "Traceback" not in ended.err


KEEP_ROOM = """\
import hvd_ft.tensorflow as hvd
import tensorflow as tf

hvd.init()
often = 2 if hvd.rank() == 1 else None
state = hvd.State(snapshot_steps=often, snapshot_overhead=1e-9)
state.sync()
while state.batch < 60:
    hvd.allreduce(tf.ones([1 << 20]), name="x")  # 4 MiB each, more than fit
    state.batch += 1
    state.commit()
"""


@pytest.mark.shows(later=True)
def test_snapshots_come_early_when_the_log_fills(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script, report = tmp_path / "keep_room.py", tmp_path / "report.jsonl"
    script.write_text(KEEP_ROOM)
    ended = run_hvdft(
        ["run", "-np", "2", "--report", str(report), sys.executable, str(script)],
        env={"HOROVOD_FT_ARENA_BYTES": "96M"},
    )
    assert ended.code == 0, ended.err
    costs = [rank["snapshots"] for rank in read_report(report).facts["ranks"]]
    assert costs[0]["steps"] > 60, "by its budget alone it would take none"
    assert 4 <= costs[0]["count"] <= 15, "the room is that of some ten steps"
    assert 30 <= costs[1]["count"] <= 45, "its own, and those that rank 0 asks for"


NO_ROOM = """\
import hashlib, sys
import tensorflow as tf
import hvd_ft.tensorflow.keras as hvd

hvd.init()
tf.keras.utils.set_random_seed(3)
table = tf.keras.layers.Embedding(90_000, 64, input_length=2)  # 23 MB, as much again in Adagrad
model = tf.keras.Sequential([table, tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adagrad(0.1)), "mse")
words = tf.reshape(tf.range(96), [48, 2])
data = tf.data.Dataset.from_tensor_slices((words, tf.ones([48, 1]))).batch(4)
kept = hvd.callbacks.FaultTolerance(snapshot_steps=2)
model.fit(data, epochs=1, verbose=0, callbacks=[kept])
digest = hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()
sys.stdout.write(f"RESULT {hvd.rank()} {digest}\\n")
"""


@pytest.mark.parametrize("drill", [[], ["--inject", "rank=1,step=7"]], ids=["", "killed"])
def test_a_snapshot_that_does_not_fit_ends_no_training(
    run_hvdft: RunHvdft, tmp_path: Path, drill: list[str]
) -> None:
    script = tmp_path / "no_room.py"
    script.write_text(NO_ROOM)
    outputs = []
    for limit in ("1G", "64M"):
        ended = run_hvdft(
            ["run", "-np", "2", *drill, sys.executable, str(script)],
            env={"HOROVOD_FT_ARENA_BYTES": limit},
        )
        assert ended.code == 0, ended.err
        outputs.append(sorted(ended.out.splitlines()))
        told = "88 MiB for 2 snapshots of 44 MiB (if its 2 ranks share all variables; 176 MiB if"
        assert (told in ended.err) == (limit == "64M"), ended.err
        assert ("the arena may take only 64 MiB" in ended.err) == (limit == "64M"), ended.err
        refused = ended.err.count("continues with")
        assert refused <= 2 + len(drill), ended.err
        assert (refused > 0) == (limit == "64M"), ended.err
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 2
