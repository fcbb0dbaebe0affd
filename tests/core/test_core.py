"""The core's own tests are programs in C++; here they are built and run."""

import contextlib
import csv
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT
from core.build_programs import build_programs

# The first one compiles them all, beside other work.
pytestmark = pytest.mark.timeout(1800)

TESTS = ROOT / "tests" / "core"

_RUN_ALONE = {"kill_test", "ring_sim", "sim_large"}
_HAVE_OTHER_ARGUMENTS = {"message_kill_test", "window_test"}  # than a size

RunTest = Callable[..., str]


@pytest.fixture(scope="session")
def programs() -> Path:
    """Builds what has changed of the tests in ``tests/core``; returns the programs' folder."""
    return build_programs()


@pytest.fixture
def run_test(programs: Path, arena_dir: Path) -> RunTest:
    """Gives a function `run_test(name, *arguments)` that returns a test's output.

    A test that fails or takes longer than 600 s leaves neither a process nor a file behind.
    """

    def run(name: str, *arguments: object) -> str:
        with subprocess.Popen(
            [programs / name, *map(str, arguments)],
            env={**os.environ, "HVDFT_TEST_DIR": str(arena_dir)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, _ = process.communicate(timeout=600)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, out
        return out

    return run


@pytest.fixture
def size(request: pytest.FixtureRequest) -> list[str]:
    """The argument with which what is long explores less, for `--quick` and `--short`."""
    options = request.config.option
    return ["small"] if options.quick or options.short else []


@pytest.mark.parametrize("name", sorted({path.stem for path in TESTS.rglob("*.cc")} - _RUN_ALONE))
def test_the_core(run_test: RunTest, name: str, size: list[str]) -> None:
    run_test(name, *([] if name in _HAVE_OTHER_ARGUMENTS else size))


def test_the_ring_through_every_single_crash(run_test: RunTest, size: list[str]) -> None:
    rings = 3 if size else 4  # of 2 to 4 members, or 5
    assert run_test("ring_sim", *size).count(" 0 not well") == rings


def test_named_scenarios_of_the_ring(run_test: RunTest) -> None:
    assert "figures-2-and-3" in run_test(
        "ring_sim", "--scenarios", TESTS / "simulator" / "ring_scenarios.txt"
    )


def test_the_simulator_finds_what_is_wrong_with_wrong_protocols(run_test: RunTest) -> None:
    assert "one-log-per-node" in run_test("ring_sim", "--wrong-protocols")


def test_large_jobs_give_the_same_bits_through_deaths(run_test: RunTest, tmp_path: Path) -> None:
    """In small; ``make sim-large`` has 1,024 ranks."""
    counts = tmp_path / "counts.csv"
    out = run_test("sim_large", "16,64", 1, counts)
    for ranks in (16, 64):
        line = rf"^{ranks} ranks: (\d+) workers died, and all agents 3 times; the same bits$"
        found = re.search(line, out, re.MULTILINE)
        assert found and int(found[1]) > 6, out
        again = rf"^{ranks} ranks with 3 connections: (\d+) workers died, .*; the same bits$"
        found = re.search(again, out, re.MULTILINE)
        assert found and int(found[1]) > 6, out
    with counts.open() as file:
        rows = {(row["ranks"], row["of"]): row for row in csv.DictReader(file)}
    nodes = 64 // 8
    assert float(rows["64", "8 B"]["ring_messages"]) <= nodes * (nodes - 1)
    assert float(rows["64", "1 MiB"]["ring_messages"]) == 2 * nodes * (nodes - 1)
    assert float(rows["64", "idle"]["mirror_messages"]) == 0
    # Virtual time: nobody waits until something else wakes it.
    assert float(rows["64", "8 B"]["virtual_us"]) < 2000
    assert float(rows["64", "1 MiB"]["virtual_us"]) < 10000


@pytest.mark.parametrize("below", [1, 2])
def test_a_tree_of_nodes_gives_the_same_bits_through_deaths(run_test: RunTest, below: int) -> None:
    """Every node on the way to rank 0's passes on what others tell."""
    out = run_test("sim_large", "--replay", f"ranks=32 per_node=4 deaths=9 below={below}")
    found = re.search(r"^(\d+) workers died, and all agents 3 times", out, re.MULTILINE)
    assert found and int(found[1]) > 6, out


@pytest.mark.parametrize("transfers", [1, 4, 16])
def test_so_many_messages_are_under_way_as_the_setting_says(
    run_test: RunTest, transfers: int
) -> None:
    out = run_test("sim_large", "--replay", f"ranks=16 per_node=1 transfers={transfers}")
    assert f"; {transfers} messages under way at most" in out


def test_a_large_job_is_the_same_again(run_test: RunTest) -> None:
    case = "ranks=16 deaths=5 seed=3"
    assert run_test("sim_large", "--replay", case) == run_test("sim_large", "--replay", case)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
def test_random_kills_never_spoil_a_sum(run_test: RunTest, ranks: int) -> None:
    kills, seed = 100, ranks
    out = run_test("kill_test", ranks, 1500, kills, seed)
    assert f" {kills} kills" in out
