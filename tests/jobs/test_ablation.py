"""HOROVOD_FT_ABLATE=network: sums stay on their nodes, whatever dies, and nobody can miss it."""

import re
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, Cluster, Ended, RunHvdft

from hvd_ft.agent.ablation import WARNING, check_ablation
from hvd_ft.errors import HvdFtError
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings
from hvd_ft.reports.headline import headline
from hvd_ft.reports.report import read_report

SUMS = [sys.executable, str(SCRIPTS / "sums_script.py")]  # it checks what every op brings
FLAT = ["--topology", "flat"]


def run_ablated(run_hvdft: RunHvdft, *arguments: str, **env: str) -> Ended:
    """Runs a job of three ranks without the network; it must end well."""
    settings = {f"HOROVOD_FT_{name}": value for name, value in env.items()}
    settings["HOROVOD_FT_ABLATE"] = "network"
    ended = run_hvdft(["run", "-np", "3", *FLAT, *arguments], env=settings)
    assert ended.code == 0, ended
    assert len(re.findall(r"SUMS \d+ \d+ \w+", ended.out)) == 3
    return ended


@pytest.mark.shows
@pytest.mark.parametrize("size", ["1000000", "1000"])
def test_every_node_keeps_its_own_sums_and_says_so(
    run_hvdft: RunHvdft, tmp_path: Path, size: str
) -> None:
    path = tmp_path / "report.jsonl"
    ended = run_ablated(run_hvdft, "--report", str(path), *SUMS, "60", size, "5")
    lines = ended.err.splitlines()
    assert lines.count(f"hvdft: {WARNING}") == 2  # at the start, and at the end
    assert headline(read_report(str(path))).startswith("NETWORK LEFT OUT, FOR MEASUREMENT ONLY, ")


@pytest.mark.parametrize("endpoints", ["1", "3"])
def test_agents_and_workers_die(run_hvdft: RunHvdft, endpoints: str) -> None:
    drills = ["agent=1,step=20", "rank=2,op=35,point=copy_in", "mpirun,step=50", "rank=0,op=70"]
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended = run_ablated(run_hvdft, *inject, *SUMS, "90", "1000000", "5", ENDPOINTS=endpoints)
    assert ended.err.count("; starting generation") == 2


def test_the_ranks_of_a_node_are_added_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_FT_ABLATE", "network")
    flags = ["--no-live", "-np", "5", "-H", "n0:3,n1:2", "--inject", "rank=1,op=30,point=copy_in"]
    hvdft = [sys.executable, "-m", "hvd_ft.cli", "run", *flags]
    ended = cluster.hvdft("run", "--", *hvdft, *SUMS, "90", "1000000", "5")
    assert ended.code == 0, ended.err
    found = dict(re.findall(r"SUMS (\d) \d (\w+)", ended.out))
    assert found["0"] == found["1"] == found["2"] != found["3"] == found["4"]


TOGETHER = """\
import sys
import numpy as np
import tensorflow as tf
import hvd_ft.tensorflow as hvd

hvd.init()
state = hvd.State(snapshot_steps=2)
state.sync()

@tf.function
def step(i):
    sums, copies = [], []
    for n in range(6):
        data = tf.fill([100_000 * (n + 1)], tf.cast(hvd.rank() + i * n, tf.float32))
        sums.append(hvd.allreduce(data, op=hvd.Sum, name=f"sum{n}"))
        copies.append(hvd.broadcast(data, root_rank=n % 3, name=f"copy{n}"))
    return sums, copies

for i in range(12):
    for n, (own, copy) in enumerate(zip(*step(tf.constant(i)))):
        assert (own.numpy() == hvd.rank() + i * n).all(), (i, n, own)
        assert (copy.numpy() == n % 3 + i * n).all(), (i, n, copy)
    state.commit()
print("SUMS", hvd.rank(), 0, "right", flush=True)
state.finish()
"""


def test_broadcasts_pass_sums_that_are_under_way(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script = tmp_path / "together.py"
    script.write_text(TOGETHER)
    run_ablated(run_hvdft, sys.executable, str(script))


def test_without_a_network_there_is_nothing_to_leave_out(run_hvdft: RunHvdft) -> None:
    env = {"HOROVOD_FT_ABLATE": "network"}
    ended = run_hvdft(["run", "-np", "2", *SUMS, "3", "1000"], env=env)
    assert ended.code == 2
    [line] = [line for line in ended.err.splitlines() if "ABLATE" in line]
    assert "all ranks are on one host" in line and "--topology flat" in line


def test_it_is_refused_where_it_would_stop_the_job() -> None:
    hosts = Nodes((0, 2, 4))
    check_ablation(Settings(ablate="network"), hosts)
    check_ablation(Settings(on_divergence="stop"), hosts)
    with pytest.raises(HvdFtError, match="set that to off"):
        check_ablation(Settings(ablate="network", on_divergence="stop"), hosts)
    with pytest.raises(HvdFtError, match="HOROVOD_FT_ABLATE='all' is not allowed: give nothing or"):
        Settings.from_env({"HOROVOD_FT_ABLATE": "all"})
