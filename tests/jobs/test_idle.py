"""What a job costs while it waits for a dead rank, and while its workers compute."""

import sys
from pathlib import Path

import pytest
from conftest import RunHvdft

JOB = """\
import os, signal, sys, threading, time
from pathlib import Path
import psutil
import hvd_ft.tensorflow as hvd
import tensorflow as tf
from hvd_ft import native
from hvd_ft.system.await_file import await_file

measured, folder = Path(sys.argv[1]) / "measured", os.environ["HOROVOD_FT_DIR"]
again = int(os.environ["HOROVOD_FT_INCARNATION"]) > 0
shim = psutil.Process().parent()
agents = shim.parent().parent().children()
SECONDS = 2.0


def cpu(agent):
    processes = [agent, *agent.children()]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def measure(name):
    before = [cpu(agent) for agent in agents]
    time.sleep(SECONDS)  # what is measured takes time
    percent = [(cpu(a) - b) / SECONDS * 100 for a, b in zip(agents, before)]
    print("FIGURE", name, max(percent), flush=True)


def own_mib(process):
    return sum(m.pss for m in process.memory_maps() if not m.path.startswith(folder)) / 2**20


def measure_while_rank_1_is_away():
    observer, worker, seen = native.Observer(folder), native.worker(), 0
    while not (observer.status(1).incarnation == 1 and observer.status(1).pid):
        worker.wait_event(seen, 60_000)
        seen = worker.event_count
    measure("waiting")
    measured.touch()


if again:
    assert await_file(measured, 60)
hvd.init()
assert len(agents) == 2
if hvd.rank() == 0:
    threading.Thread(target=measure_while_rank_1_is_away).start()
hvd.allreduce(tf.ones([1 << 20]), name="large")
if hvd.rank() == 1 and not again:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(tf.ones([1]), name="meet")
if hvd.rank() == 0:
    measure("computing")
    for agent in agents:
        [shim] = agent.children()
        print("FIGURE memory", own_mib(agent) + own_mib(shim), flush=True)
hvd.allreduce(tf.ones([1]), name="end")
"""


@pytest.mark.shows
def test_an_idle_job_costs_next_to_nothing(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    ended = run_hvdft(
        ["run", "-np", "2", sys.executable, str(script), str(tmp_path)],
        env={"HOROVOD_FT_HANG_TIMEOUT_SECONDS": "60"},
    )
    assert ended.code == 0, ended.err
    print(ended.out)
    figures = [line.split()[1:] for line in ended.out.splitlines() if line.startswith("FIGURE")]
    assert [name for name, _ in figures] == ["waiting", "computing", "memory", "memory"]
    for name, value in figures:
        assert float(value) < (80 if name == "memory" else 5), (name, value)
