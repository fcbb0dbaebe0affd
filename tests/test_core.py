"""The core's own tests are programs in C++; here they are built and run."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "hvd_ft" / "core"
TESTS = ROOT / "tests" / "core"
COMPILE = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]

RunTest = Callable[..., str]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds every test in ``tests/core`` together with the core; returns the folder."""
    folder = tmp_path_factory.mktemp("core")

    def compiled(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        subprocess.run([*COMPILE, f"-I{CORE}", "-c", source, "-o", target], check=True)
        return target

    tests = sorted(TESTS.glob("*.cc"))
    # The largest first, so that the last one is not waited for alone.
    sources = sorted([*CORE.glob("*.cc"), *tests], key=lambda path: -path.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = dict(zip(sources, pool.map(compiled, sources), strict=True))
    core = [made for source, made in objects.items() if source not in tests]
    for test in tests:
        command = ["g++", "-pthread", objects[test], *core, "-o", folder / test.stem]
        subprocess.run(command, check=True)
    return folder


@pytest.fixture
def run_test(programs: Path, arena_dir: Path) -> RunTest:
    """Gives a function `run_test(name, *arguments)` that returns a test's output.

    A test that fails or takes longer than 120 s leaves neither a process nor a file behind.
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
                out, _ = process.communicate(timeout=120)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, out
        return out

    return run


@pytest.mark.parametrize(
    "name", sorted({path.stem for path in TESTS.glob("*.cc")} - {"kill_test", "ring_sim"})
)
def test_the_core(run_test: RunTest, name: str) -> None:
    run_test(name)


def test_the_ring_through_every_single_crash(run_test: RunTest) -> None:
    assert run_test("ring_sim").count(" 0 not well") == 4  # rings of 2 to 5


def test_named_scenarios_of_the_ring(run_test: RunTest) -> None:
    assert "figures-2-and-3" in run_test("ring_sim", "--scenarios", TESTS / "ring_scenarios.txt")


def test_the_simulator_finds_what_is_wrong_with_wrong_protocols(run_test: RunTest) -> None:
    assert "one-log-per-node" in run_test("ring_sim", "--wrong-protocols")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
def test_random_kills_never_spoil_a_sum(run_test: RunTest, ranks: int) -> None:
    seconds, seed = 2, ranks
    out = run_test("kill_test", ranks, 1500, seconds, seed)
    print(out, end="")
    assert int(out.split(" kills")[0].rsplit(" ", 1)[1]) > 0
