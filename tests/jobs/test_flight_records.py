"""The flight records that jobs write by themselves: of a stall, a crash loop, a broken link."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SCRIPTS, RunHvdft, running_cluster
from test_generations import SUMS
from test_network import Running, start
from test_status_hosts import stop

SCHEMA = json.loads((ROOT / "docs/reference/flight_record.schema.json").read_text())
# Rank 1 keeps the others waiting in its fifth step until there is a record.
STALLS = f"""\
import glob, os, runpy, sys, time
from hvd_ft.native.stacks import offer_stacks

wait, records, steps = time.sleep, sys.argv[1], 0
def read_input(_):
    global steps
    steps += 1
    while os.environ["HOROVOD_RANK"] == "1" and steps == 5 and not glob.glob(records):
        wait(0.05)
time.sleep = read_input
offer_stacks()
sys.argv[1:] = ["10", "4000"]
runpy.run_path({str(SCRIPTS / "sums_script.py")!r})
"""
FAILS = """\
import os, sys, time
from hvd_ft.p2p import rank

if rank() == 1:
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.05)
    raise RuntimeError("the disk is away" + sys.argv[1] * int(os.environ["HOROVOD_FT_INCARNATION"]))
open(sys.argv[2], "w").close()
time.sleep(1000)
"""
SOON = {"HOROVOD_FT_STALL_WARNING_SECONDS": "2"}


def record_at(path: Path) -> Any:
    """Returns a record, which has the form that is documented."""
    jsonschema = pytest.importorskip("jsonschema")
    found = json.loads(path.read_text())
    jsonschema.validate(found, SCHEMA)
    return found


@pytest.mark.shows(later=True)
def test_a_rank_that_stalls_leaves_a_record_of_where_it_is(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    report, path = tmp_path / "run.jsonl", tmp_path / "run.flight-1.json"
    job = ["run", "-np", "2", "--no-live", "--report", str(report)]
    ended = run_hvdft([*job, sys.executable, "-c", STALLS, str(path)], env=SOON)
    assert ended.code == 0, ended.err
    assert f"flight record (stall): hvdft report {path} shows it" in ended.err
    record = record_at(path)
    assert [reason["kind"] for reason in record["reasons"]] == ["stall"]
    assert record["missing"] == []
    assert "in read_input" in record["stacks"]["1"] and "in agree" in record["stacks"]["0"]
    [node] = record["nodes"]
    assert node["status"]["ranks"][0]["waits_for"]["ranks"] == [1]
    shown = run_hvdft(["report", str(path)])
    assert "rank 1 keeps 1 rank waiting" in shown.out


@pytest.mark.shows(later=True)
def test_a_worker_that_cannot_write_its_stacks_outlives_a_record(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    """The signal that asks for stacks ended a worker that had not prepared for it."""
    report = tmp_path / "run.jsonl"
    job = ["run", "-np", "2", "--no-live", "--report", str(report)]
    job += ["--inject", "rank=1,step=5,signal=STOP"]
    limits = {**SOON, "HOROVOD_FT_HANG_TIMEOUT_SECONDS": "8"}
    ended = run_hvdft([*job, *SUMS, "10", "4000"], env=limits)
    assert ended.code == 0, ended.err
    assert sorted(re.findall(r"SUMS (\d) (\d)", ended.out)) == [("0", "0"), ("1", "1")], ended.err
    record = record_at(tmp_path / "run.flight-1.json")
    assert record["stacks"]["1"] == "it is stopped (SIGSTOP)"
    assert "has not been prepared to write its stacks" in record["stacks"]["0"]


def test_without_a_report_the_user_hears_how_to_get_a_record(
    arena_dir: Path, tmp_path: Path
) -> None:
    program = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", "2", "--no-live"]
    process = subprocess.Popen(
        [*program, sys.executable, "-c", STALLS, "*.flight-1.json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **SOON, "HOROVOD_FT_ARENA_DIR": str(arena_dir)},
    )
    running = Running(process)
    threading.Thread(target=running.listen, daemon=True).start()
    running.await_line(f"kill -USR2 {process.pid} writes one now")
    os.kill(process.pid, signal.SIGUSR2)
    code, _, err = running.end()
    assert code == 0, err
    assert err.count("there is no flight record of this") == 1
    [path] = tmp_path.glob("hvdft-*.flight-1.json")
    assert "in read_input" in record_at(path)["stacks"]["1"]


@pytest.mark.shows(later=True)
@pytest.mark.parametrize(
    ("more", "why"), [("", "failed again at step 0 with the same error"), ("!", "failed 2 times")]
)
def test_a_crash_loop_leaves_a_record_of_the_others(
    run_hvdft: RunHvdft, tmp_path: Path, more: str, why: str
) -> None:
    report = tmp_path / "run.jsonl"
    job = ["run", "-np", "2", "--no-live", "--report", str(report)]
    job += [sys.executable, "-c", FAILS, more, str(tmp_path / "begun")]
    ended = run_hvdft(job, env={"HOROVOD_FT_MAX_FAILURES": "1"})
    assert ended.code == 1, ended.err
    assert "flight record (stop): hvdft report " in ended.err
    record = record_at(tmp_path / "run.flight-1.json")
    [reason] = record["reasons"]
    assert reason["kind"] == "stop"
    assert why in reason["text"] and "the disk is away" in reason["text"]
    assert "in <module>" in record["stacks"]["0"]


@pytest.mark.long
def test_a_broken_link_leaves_a_record_before_agents_are_started_again(tmp_path: Path) -> None:
    report = tmp_path / "run.jsonl"
    with running_cluster("--rate", "1gbit") as nodes:
        running = start(nodes, (100_000, 400_000, 0.0), flags=["--report", str(report)])
        # What n1 sends to n2 goes to nobody, and neither end gets an error.
        nodes.sh(
            "n1", "ip neigh replace 10.213.0.3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent"
        )
        running.await_line("flight record (link): hvdft report ")
        nodes.sh("n1", "ip neigh del 10.213.0.3 dev eth0")
        running.await_line("starting generation 1 of its agents")
        err = stop(running)
    lines = err.splitlines()
    (recorded,) = [n for n, line in enumerate(lines) if "flight record (link)" in line]
    (restarted,) = [n for n, line in enumerate(lines) if "; starting generation 1" in line]
    assert recorded < restarted
    record = record_at(tmp_path / "run.flight-1.json")
    [reason] = record["reasons"]
    assert reason["kind"] == "link" and "n1 -> n2" in reason["text"]
    assert record["missing"] == []
    assert len(record["nodes"]) == 3 and all(node["received"] for node in record["nodes"])
