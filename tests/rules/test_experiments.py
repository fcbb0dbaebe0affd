"""What experiments run inside a job, made small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, RunHvdft

from experiments.endpoints.wire import Model, Traffic, flow_of
from experiments.locality.core import compile_sum


@pytest.mark.shows
def test_localitys_core_sums_without_tensorflow(
    run_hvdft: RunHvdft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    library = tmp_path / "core_sum.so"
    compile_sum(library)
    module = [sys.executable, "-m", "experiments.locality.core", "--library", str(library)]
    sizes = ["--side", "core", "--bytes", "4000,300000", "--repeats", "2", "--in-a-row", "3"]
    ended = run_hvdft(["run", "--no-live", "-np", "2", *module, *sizes])
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
    assert [(row["bytes"], row["repeat"]) for row in rows] == [
        (size, repeat) for size in (4000, 300000) for repeat in (0, 1)
    ]
    assert all(row["wrong"] == 0 and row["seconds"] > 0 for row in rows)


@pytest.mark.parametrize(
    "name",
    ["locality.run", "recovery_time.run", "recovery_time.agent", "snapshot_cost.run",
     "state_memory.run", "time_to_converge.run", "lost_host.run", "checkpoint_cost.run",
     "buddy_cost.run", "endpoints.run"],
)  # fmt: skip
@pytest.mark.job
def test_bad_options_are_told_in_a_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    number = {"locality.run": "--turns", "state_memory.run": "--steps"}.get(name, "--repeats")
    for flags in (["--output", str(tmp_path / "file" / "in")], [number, "0"], [number, "x"]):
        command = [sys.executable, "-m", f"experiments.{name}", *flags]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == 2
        assert "Traceback" not in ended.stderr, ended.stderr
        assert f"error: argument {flags[0]}: " in ended.stderr


MBIT = 1e6


@pytest.mark.parametrize(
    ("model", "arrivals"),
    [
        # Host 0 sends 1 Mbit to 1 twice, over connections a and b, 1 sends one to 0, 2 one to 1.
        (Model(delay=0.5), [0.5, 0.5, 0.5, 0.5]),
        (Model(rate=MBIT), [1, 2, 1, 3]),  # 1's link is a pipe into which 0 and 2 send
        (Model(rate=MBIT, cables=True), [1, 2, 1, 1]),
        (Model(flow_rate=MBIT), [1, 1, 1, 1]),
        (Model(rate=2 * MBIT, flow_rate=MBIT, delay=1), [2.5, 3, 2.5, 3.5]),
    ],
)
def test_the_wire_of_endpoints_limits_links_and_connections(
    model: Model, arrivals: list[float]
) -> None:
    traffic, size = Traffic(model), 125_000
    sent = [(0, 1, "a"), (0, 1, "b"), (1, 0, "c"), (2, 1, "d")]
    assert [traffic.arrival(0.0, *way, size) for way in sent] == arrivals


def test_the_wire_of_endpoints_tells_connections_apart() -> None:
    header = bytes(10)
    ip = bytes([0x46]) + bytes(8) + bytes([6]) + bytes(2) + bytes([10, 214, 0, 2, 10, 214, 0, 1])
    options = bytes(4)
    assert flow_of(header + ip + options + bytes([1, 2, 3, 4])) == (2, 1, 0x102, 0x304)
    assert flow_of(header + ip[:9] + bytes([17]) + ip[10:] + options) == (2, 1, 0, 0)
