"""Runs Horovod's own parallel tests on its MPI backend and on ft, and compares them test by test.

The checkout is one of Horovod's repository at the tag v0.28.1; nothing of it is part of hvd_ft.
Each file of tests runs once on each backend, on all ranks at once. The exit code is 1 if anything
that passes on MPI does not pass on ft, apart from EXCEPTIONS (docs/operations.md).

    scripts/compare_horovod_tests.py ../horovod test_tensorflow.py -np 2
    scripts/compare_horovod_tests.py ../horovod --framework torch
"""

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUTCOMES = ("passed", "skipped", "unfinished", "failed")  # a test's is the worst of its ranks'
BACKENDS = ("mpi", "ft")
FILES = (
    "test_tensorflow.py",
    "test_tensorflow_keras.py",
    "test_tensorflow2_keras.py",
    "test_common.py",
    "test_xla.py",
    "test_compute_worker.py",
    "test_tensorflow_process_sets.py",
    "test_tensorflow_process_sets_dynamic.py",
    "test_tensorflow2_keras_process_sets.py",
    "test_process_sets_static.py",
    "test_process_sets_multi_comm.py",
    "test_xla_process_sets.py",
    "test_adasum_tensorflow.py",
)
OF_TORCH = ("test_torch.py", "test_adasum_pytorch.py")
EXCEPTIONS = {
    "test_adasum_tensorflow.py": "ft has no Adasum",
    "test_adasum_pytorch.py": "ft has no Adasum",
    "test_gloo_built": "takes HOROVOD_RANK, which agents set, for a sign of Gloo",
    "test_process_sets_multi_comm.py": "ft's workers have no MPI, so no communicators",
}

# Horovod's tests look for these two. A rank with tests that failed (1) does not end the others.
_RUN = """
: ${HOROVOD_RANK:=$PMI_RANK} ${HOROVOD_SIZE:=$PMI_SIZE}
export OMPI_COMM_WORLD_RANK=$HOROVOD_RANK OMPI_COMM_WORLD_SIZE=$HOROVOD_SIZE
export COMPARE_OUT=$COMPARE_OUT/$HOROVOD_RANK
"$@" || test $? -eq 1
"""


# ---------------------------------------------------------------- in the ranks, as pytest's plugin
def pytest_runtest_logreport(report: Any) -> None:
    """Notes what became of a phase of a test, so that nothing is lost when the process dies."""
    if report.when == "setup" or report.outcome != "passed":
        unfinished = report.when == "setup" and report.outcome == "passed"
        outcome = "unfinished" if unfinished else report.outcome
    elif report.when == "call":
        outcome = "passed"
    else:
        return
    with open(os.environ["COMPARE_OUT"], "a") as out:
        print(json.dumps([report.nodeid, outcome]), file=out)


# ---------------------------------------------------------------- runs


def backend_command(backend: str, ranks: int) -> tuple[list[str], dict[str, str]]:
    """Returns what starts the ranks, and their environment."""
    from hvd_ft.mpi.environment import mpi_environment

    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOROVOD_")}
    if backend == "mpi":
        return ["mpirun", "-n", str(ranks)], environment | mpi_environment()
    # A rank that dies has failed its test: restarts would only repeat it.
    environment["HOROVOD_FT_MAX_FAILURES"] = "0"
    return [sys.executable, "-m", "hvd_ft.cli", "run", "-np", str(ranks)], environment


def run(backend: str, tests: Path, log: Path, options: argparse.Namespace) -> dict[str, str]:
    """Runs a file of tests.

    Args:
        backend: One of `BACKENDS`.
        tests: The file.
        log: Where the ranks' output goes.
        options: The command line's.

    Returns:
        The outcome of each test.
    """
    start, environment = backend_command(backend, options.num_proc)
    with tempfile.TemporaryDirectory() as folder, log.open("w") as output:
        environment |= {
            "COMPARE_OUT": folder,
            "PYTHONPATH": str(Path(__file__).parent),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        pytest = [sys.executable, "-m", "pytest", "-v", "-p", Path(__file__).stem]
        pytest += ["-p", "no:cacheprovider", "--tb=short"]
        pytest += ["-k", options.k] if options.k else []
        process = subprocess.Popen(
            [*start, "sh", "-c", _RUN, "sh", *pytest, tests.name],
            cwd=tests.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(options.minutes * 60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            process.wait()
        return outcomes([Path(folder, str(rank)) for rank in range(options.num_proc)])


def outcomes(notes: Sequence[Path]) -> dict[str, str]:
    """Returns the outcome of each test: the worst of the ranks' last ones."""
    worst: dict[str, str] = {}
    for path in notes:
        last: dict[str, str] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            test, outcome = json.loads(line)
            if last.get(test) != "failed":  # a part of it has, whatever became of the rest
                last[test] = outcome
        for test, outcome in last.items():
            worst[test] = max(worst.get(test, OUTCOMES[0]), outcome, key=OUTCOMES.index)
    return worst


# ---------------------------------------------------------------- comparison


def differences(mpi: Mapping[str, str], ft: Mapping[str, str]) -> dict[str, str]:
    """Returns what passes on MPI and not on ft, each with its outcome there."""
    return {
        test: ft.get(test, "not run")
        for test, outcome in sorted(mpi.items())
        if outcome == "passed" and ft.get(test) != "passed"
    }


def exception(test: str) -> str | None:
    """Returns the reason why a test need not pass, if there is one."""
    return next((reason for part, reason in EXCEPTIONS.items() if part in test), None)


def count(results: Mapping[str, str]) -> str:
    """Returns how many tests came to which end, readable."""
    counts = Counter(results.values())
    return ", ".join(f"{counts[o]} {o}" for o in OUTCOMES if counts[o]) or "none run"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, help="Horovod's repository at tag v0.28.1")
    parser.add_argument("files", nargs="*", help="of test/parallel; by default those of the "
                        f"framework: {', '.join([*FILES, *OF_TORCH])}")  # fmt: skip
    parser.add_argument("--framework", choices=("tensorflow", "torch"), default="tensorflow")
    parser.add_argument("-np", "--num-proc", type=int, default=2, help="ranks (default 2)")
    parser.add_argument("-k", help="only tests that match this, as pytest's -k")
    parser.add_argument("--minutes", type=float, default=20, help="a file is stopped after so long")
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="folder for the output")
    options = parser.parse_args(arguments)
    options.files = options.files or (OF_TORCH if options.framework == "torch" else FILES)
    tests = [options.checkout / "test" / "parallel" / name for name in options.files]
    for name, path in zip(options.files, tests, strict=True):
        if not path.is_file():
            parser.error(f"{options.checkout} has no test/parallel/{name}; give a checkout of "
                         "Horovod's repository at tag v0.28.1")  # fmt: skip
    sources = [path.read_text() for path in (options.checkout / "test").rglob("*.py")]
    for package in ("mock", "parameterized"):
        imported = re.compile(f"^(from|import) {package}\\b", re.MULTILINE)
        if any(map(imported.search, sources)) and importlib.util.find_spec(package) is None:
            parser.error(f"these tests need the package {package}; pip install {package}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs and compares; returns the exit code."""
    from rich.console import Console
    from rich.table import Column, Table

    options = parse(arguments)
    options.out.mkdir(exist_ok=True)
    console = Console()
    table = Table(Column("test", overflow="fold"), "on ft", "excepted: reason")
    bad = False
    for name in options.files:
        tests = (options.checkout / "test" / "parallel" / name).resolve()
        results = {}
        for backend in BACKENDS:
            log = options.out / f"{tests.stem}-{backend}-{options.num_proc}.log"
            results[backend] = run(backend, tests, log, options)
            console.print(f"{name} on {backend}: {count(results[backend])}; {log}")
        bad |= not results["mpi"]
        for test, outcome in differences(results["mpi"], results["ft"]).items():
            reason = exception(test)
            bad |= reason is None
            table.add_row(test, outcome, reason or "")
    if table.row_count:
        console.print("Passes on mpi, not on ft:", table)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
