"""What experiments share: how they end, and where their results go."""

import argparse
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from experiments.common import add_output, run_to_end
from hvd_ft.errors import HvdFtError
from hvd_ft.system.await_file import await_file
from hvd_ft.tools.cluster import tools
from hvd_ft.tools.cluster.cluster_dir import BASE, ClusterDir
from hvd_ft.tools.cluster.lifecycle import down
from hvd_ft.tools.cluster.plan import Plan

ON_A_CLUSTER = """
import sys
from experiments.common import HVDFT, cluster_up, end_with, run_to_end
def main():
    with cluster_up("stopped", 2) as name:
        wait = "echo there; exec sleep 600"
        run_to_end([*HVDFT, "cluster", "exec", "--name", name, "n1", "sh", "-c", wait])
    return 0
end_with(main)
"""
HANG_SECONDS = 100


def experiment(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.shows
@pytest.mark.job
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("when", ["a job runs on it", "it is being made"])
def test_a_stop_signal_leaves_no_cluster_behind(number: signal.Signals, when: str) -> None:
    try:
        tools.check(Plan())
    except HvdFtError as error:
        pytest.skip(f"there can be no cluster here: {error}")
    BASE.mkdir(mode=0o700, exist_ok=True)
    process = experiment(ON_A_CLUSTER)
    cluster = ClusterDir(f"stopped-{process.pid}")
    assert process.stdout
    try:
        if when == "a job runs on it":
            assert process.stdout.readline() == "there\n"
            assert cluster.alive()
        else:
            assert await_file(cluster.path, HANG_SECONDS)
        process.send_signal(number)
        assert process.wait(HANG_SECONDS) == 128 + number
        assert not cluster.alive()
        assert not cluster.exists()
    finally:  # what failed leaves nothing behind either
        process.kill()
        if cluster.exists():
            down(cluster.name)


def test_a_stopped_experiment_ends_its_job_in_order(tmp_path: Path) -> None:
    told = tmp_path / "told"
    job = f"trap 'sleep 0.3; echo ended >{told}; kill $!; exit' TERM; sleep 600 & echo there; wait"
    code = f"""
from experiments.common import end_with, run_to_end
end_with(lambda: run_to_end(["sh", "-c", {job!r}]).returncode)
"""
    process = experiment(code)
    assert process.stdout
    assert process.stdout.readline() == "there\n"
    process.terminate()
    assert process.wait(HANG_SECONDS) == 128 + signal.SIGTERM
    assert told.read_text() == "ended\n"


def test_a_stop_while_a_job_is_being_started_ends_it(tmp_path: Path) -> None:
    told = tmp_path / "told"
    job = f"trap 'kill $!; exit' TERM; sleep 600 & wait; : {told}"
    code = f"""
import signal, subprocess
from experiments import common
class Slow(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        signal.raise_signal(signal.SIGTERM)  # as if the other were still being made
common.Popen = Slow
common.end_with(lambda: common.run_to_end(["sh", "-c", {job!r}], stdout=subprocess.DEVNULL))
"""
    process = experiment(code)
    assert process.wait(HANG_SECONDS) == 128 + signal.SIGTERM
    assert subprocess.run(["pgrep", "-f", str(told)], check=False).returncode == 1


def test_a_command_has_a_limit() -> None:
    with pytest.raises(HvdFtError, match=r"took longer than 0\.2 s: .*'sleep', '600'"):
        run_to_end(["sleep", "600"], 0.2)
    assert run_to_end(["sh", "-c", "exit 3"], 60.0).returncode == 3
    assert run_to_end(["pwd"], stdout=subprocess.PIPE, text=True).stdout.strip() == str(ROOT)


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_output(parser, ROOT / "experiments" / "failures")
    return parser


def test_committed_results_are_overwritten_only_when_told(
    parser: argparse.ArgumentParser, tmp_path: Path
) -> None:
    assert parser.parse_args([]).output == ROOT / "out" / "failures"
    assert (ROOT / "out" / "failures").is_dir()
    assert parser.parse_args(["--commit"]).output == ROOT / "experiments" / "failures"
    assert parser.parse_args(["--output", str(tmp_path / "new")]).output == tmp_path / "new"
    assert (tmp_path / "new").is_dir()
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parser.parse_args(["--commit", "--output", str(tmp_path)])


def test_every_experiment_writes_where_it_is_told() -> None:
    """None writes into its own folder by itself, and all end in order on a signal."""
    programs = {
        path: text
        for path in (ROOT / "experiments").rglob("*.py")
        if path.name != "common.py"
        and "ArgumentParser" in (text := path.read_text())
        and re.search(r"write_csv\(|\.savefig\(|DictWriter", text)
    }
    assert len(programs) >= 16
    for path, text in programs.items():
        assert "add_output(parser, " in text, path
        assert "    end_with(main)\n" in text, path
        assert not re.search(r"savefig\((?:HERE|FOLDER)|write_csv\((?:HERE|FOLDER)", text), path
