"""`hvdft status` while a rank of a real job is away."""

import json
import sys
from pathlib import Path

import jsonschema
import pytest
from conftest import ROOT, RunHvdft

KILLED = """\
import json, os, signal, subprocess, sys, time
import psutil
from hvd_ft.p2p import ft_recv, ft_send, rank
import numpy as np

me, folder = rank(), sys.argv[1]
incarnation = int(os.environ["HOROVOD_FT_INCARNATION"])
seen = os.path.join(folder, "seen")


def status():
    command = [sys.executable, "-m", "hvd_ft.cli", "status", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


if me == 1 and incarnation == 0:
    os.kill(os.getpid(), signal.SIGKILL)
if me == 0:
    found = status()
    while found["state"] != "recovering":  # no event tells of it
        found = status()
    with open(seen + ".new", "w") as file:
        json.dump(found, file)
    launcher = next(
        each for each in psutil.Process().parents() if each.cmdline()[3:4] == ["run"]
    )
    launcher.send_signal(signal.SIGUSR2)
    while not os.path.exists(os.path.join(folder, "run.flight-1.json")):
        time.sleep(0.02)
    os.rename(seen + ".new", seen)
    ft_recv(None, 1)
else:
    ft_send(np.ones(1), 0)
"""
# Before rank(), so the state of the rank stays as it is until it was seen.
HOLD = """\
import os, sys, time
while os.environ["HOROVOD_FT_INCARNATION"] == "1" and not os.path.exists(sys.argv[1] + "/seen"):
    time.sleep(0.02)
"""


@pytest.mark.shows(later=True)
def test_a_killed_ranks_recovery_is_seen(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(HOLD + KILLED)
    report = tmp_path / "run.jsonl"
    command = [sys.executable, str(script), str(tmp_path)]
    ended = run_hvdft(["run", "-np", "2", "--report", str(report), *command])
    assert ended.code == 0, ended.err
    found = json.loads((tmp_path / "seen").read_text())
    schema = json.loads((ROOT / "docs/reference/status.schema.json").read_text())
    jsonschema.validate(found, schema)
    of_flights = json.loads((ROOT / "docs/reference/flight_record.schema.json").read_text())
    assert found["ranks"][1]["state"] == "restarting"
    [death] = found["recoveries"]
    assert (death["rank"], death["cause"], death["total_seconds"]) == (1, "signal 9", None)
    assert found["report"] == str(report)
    record = str(tmp_path / "run.flight-1.json")
    assert f"flight record (asked): hvdft report {record} shows it" in ended.err
    jsonschema.validate(json.loads(Path(record).read_text()), of_flights)
    shown = run_hvdft(["report", record])
    assert shown.code == 0, shown.err
    text = shown.out
    assert "asked: the user has asked for it (SIGUSR2)" in text
    assert "missing" not in text
    assert "node of ranks 0-1 on" in text
    assert (
        'killed.py", line' in text[text.index("stacks of rank 0") : text.index("stacks of rank 1")]
    )
