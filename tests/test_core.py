"""The core's own tests are programs in C++; here they are built and run."""

import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "hvd_ft" / "core"


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """Builds ``tests/core/<name>.cc`` together with the core; returns the program's path."""
    directory = tmp_path_factory.mktemp("core")
    objects: list[str] = []

    def compiled(source: Path) -> str:
        target = directory / f"{source.stem}.o"
        command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
        subprocess.run([*command, f"-I{CORE}", "-c", source, "-o", target], check=True)
        return str(target)

    @cache
    def build(name: str) -> Path:
        if not objects:
            objects.extend(compiled(source) for source in sorted(CORE.glob("*.cc")))
        test = compiled(ROOT / "tests" / "core" / f"{name}.cc")
        subprocess.run(["g++", "-pthread", test, *objects, "-o", directory / name], check=True)
        return directory / name

    return build


def test_sequencer(program):
    subprocess.run([program("sequencer_test")], check=True, timeout=60)


def test_a_new_term_never_counts_what_the_log_has(program):
    subprocess.run([program("negotiation_test")], check=True, timeout=60)


def test_every_interleaving_of_segments(program):
    subprocess.run([program("segments_test")], check=True, timeout=60)


def test_the_rings_arithmetic_and_its_protocol_undisturbed(program):
    subprocess.run([program("ring_test")], check=True, timeout=60)


def test_the_rings_halves_on_threads(program):
    subprocess.run([program("ring_threads_test")], check=True, timeout=60)


def simulated(program, *arguments) -> str:
    """Runs the ring's simulator, which says how to replay what fails; returns what it printed."""
    command = [program("ring_sim"), *arguments]
    done = subprocess.run(command, check=False, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_ring_through_every_single_crash(program):
    assert simulated(program).count(" 0 not well") == 4  # rings of 2 to 5


def test_named_scenarios_of_the_ring(program):
    scenarios = ROOT / "tests" / "core" / "ring_scenarios.txt"
    assert "figures-2-and-3" in simulated(program, "--scenarios", scenarios)


def test_the_simulator_finds_what_is_wrong_with_wrong_protocols(program):
    assert "one-log-per-node" in simulated(program, "--wrong-protocols")


def test_reduce_and_heap(program):
    subprocess.run([program("reduce_test")], check=True, timeout=60)


def test_what_workers_are_told_about_the_logs_room(program):
    subprocess.run([program("log_room_test")], check=True, timeout=60)


def test_random_kills_never_spoil_a_sum(program):
    kill_test = program("kill_test")
    for ranks, seed in ((1, 1), (2, 2), (3, 3), (4, 4), (5, 5)):
        command = [kill_test, str(ranks), "1500", "2", str(seed)]
        done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
        print(done.stdout, end="")
        kills = int(done.stdout.split(" kills")[0].rsplit(" ", 1)[1])
        assert kills > 0
