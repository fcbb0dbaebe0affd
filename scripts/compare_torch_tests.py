"""Runs PyTorch's own tests of torch.distributed on Gloo and on hvd_ft, and compares them.

The tests are those of `torch.testing._internal.distributed.distributed_test`, a part of PyTorch,
as Gloo runs them without a GPU. Where they ask for Gloo by name, they get hvd_ft. They run one
after the other, each with a process group of its own; after one that fails, dies or hangs, the
next ones run in new processes. The exit code is 1 if anything that passes on Gloo does not pass
on hvd_ft, apart from EXCEPTIONS (docs/operations.md).

    scripts/compare_torch_tests.py -np 3
    scripts/compare_torch_tests.py -k all_reduce
"""

import argparse
import contextlib
import faulthandler
import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from compare_horovod_tests import count, differences, outcomes

ROOT = Path(__file__).resolve().parent.parent
SUITE = "torch.testing._internal.distributed.distributed_test"
BACKENDS = ("gloo", "hvd_ft")
GRACE = 5  # seconds that the other ranks have when a test has failed on one
WAITS = "hvd_ft waits for a rank that is missing; timeout= is not used"
NO_SOURCE = "recv needs a source: after a restart another message could come first"
FOR_GLOO = "PyTorch has monitored_barrier for Gloo only"
EXCEPTIONS = {
    "test_barrier_timeout_full_group": WAITS,
    "test_barrier_timeout_global": WAITS,
    "test_barrier_timeout_group": WAITS,
    "test_ddp_logging_data_cpu": "buckets are built before the first step, and stay",
    "test_get_backend": "it expects the name gloo",
    "test_monitored_barrier_gloo": FOR_GLOO,
    "test_monitored_barrier_gloo_rank_0_timeout": WAITS,
    "test_monitored_barrier_gloo_subgroup": FOR_GLOO,
    "test_send_recv_any_source": NO_SOURCE,
    "test_send_recv_any_source_autograd_profiler": NO_SOURCE,
    "test_send_recv_any_source_torch_profiler": NO_SOURCE,
}


# ---------------------------------------------------------------- in the ranks
def be_rank(rank: int, folder: Path, backend: str, tests: Sequence[str], seconds: float) -> int:
    """Runs tests as one of the ranks, and notes what became of each.

    Args:
        rank: of this process.
        folder: for the notes and other files, of all ranks.
        backend: One of `BACKENDS`.
        tests: their names, in order.
        seconds: that a test may take.

    Returns:
        The exit code: 1 if a test has failed; later ones have not run then.
    """
    suite: Any = importlib.import_module(SUITE)
    dist: Any = importlib.import_module("torch.distributed")
    if backend == "hvd_ft":
        give_hvd_ft(dist)
    ranks = int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(str(folder / "ranks"), ranks)
    for test in tests:
        note(folder, rank, test, "unfinished")
        faulthandler.dump_traceback_later(seconds, exit=True)
        outcome = run_test(suite, dist, test, rank, folder / test)
        faulthandler.cancel_dump_traceback_later()
        note(folder, rank, test, outcome)
        store.set(f"{test}/{rank}", outcome)
        if failed_somewhere(store, test, ranks, seconds if outcome != "failed" else GRACE):
            os._exit(1)
    return 0


def give_hvd_ft(dist: Any) -> None:
    """Lets the tests have hvd_ft where they ask for Gloo."""
    importlib.import_module("hvd_ft.torch.distributed")
    begin, add = dist.init_process_group, dist.new_group

    @functools.wraps(begin)
    def init_process_group(*_: Any, timeout: Any = None, **__: Any) -> None:
        begin("hvd_ft", timeout=timeout)

    @functools.wraps(add)
    def new_group(*arguments: Any, backend: str | None = None, **more: Any) -> Any:
        return add(*arguments, backend="hvd_ft" if backend == "gloo" else backend, **more)

    dist.init_process_group, dist.new_group = init_process_group, new_group


def run_test(suite: Any, dist: Any, test: str, rank: int, folder: Path) -> str:
    """Runs a test as PyTorch's `TestDistBackend._run` does; returns its outcome."""
    for name in ("barrier", "test_dir", "init_dir"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    os.environ["TEMP_DIR"] = str(folder)
    suite.INIT_METHOD = f"file://{folder}/init_dir/again"
    suite.Barrier.barrier_id = 0
    case = tests_of(suite)(test)
    case.rank, case.file_name = rank, str(folder / "init")
    print(f"--- {test}", file=sys.stderr, flush=True)
    try:
        dist.init_process_group(
            backend="gloo",
            init_method=case.init_method,
            rank=rank,
            world_size=int(case.world_size),
            timeout=timedelta(seconds=suite.default_pg_timeout),
        )
        case._barrier(timeout=suite.default_pg_timeout)
        importlib.import_module("torch.testing._internal.common_utils").set_rng_seed()
        getattr(case, test)()
        outcome = "passed"
    except BaseException as error:
        outcome = "skipped" if is_skip(error) else "failed"
        traceback.print_exc(limit=None if outcome == "failed" else 0)
    with contextlib.suppress(AssertionError, ValueError):  # the test has done it
        dist.destroy_process_group()
    return outcome


def is_skip(error: BaseException) -> bool:
    """Whether a test has ended with this error to say that it is not for here."""
    if isinstance(error, SystemExit):
        skips = importlib.import_module("torch.testing._internal.common_distributed").TEST_SKIPS
        return error.code in {skip.exit_code for skip in skips.values()}
    return type(error).__name__ == "SkipTest"


def failed_somewhere(store: Any, test: str, ranks: int, seconds: float) -> bool:
    """Whether a test has failed on a rank, or has not ended there in this time."""
    keys = [f"{test}/{rank}" for rank in range(ranks)]
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except RuntimeError:
        return True
    return any(store.get(key) == b"failed" for key in keys)


def note(folder: Path, rank: int, test: str, outcome: str) -> None:
    """Notes what became of a test, so that nothing is lost when the process dies."""
    with (folder / f"{rank}.notes").open("a") as out:
        print(json.dumps([test, outcome]), file=out)


def tests_of(suite: Any) -> Any:
    """Returns the class that has all tests, as PyTorch makes it for its own runs."""
    return type("Tests", (suite.TestDistBackend, suite.DistributedTest._DistTestBase), {})


# ---------------------------------------------------------------- runs
def run(
    backend: str, tests: Sequence[str], log: Path, options: argparse.Namespace
) -> dict[str, str]:
    """Runs tests on a backend.

    Args:
        backend: One of `BACKENDS`.
        tests: their names.
        log: Where the ranks' output goes.
        options: The command line's.

    Returns:
        The outcome of each test.
    """
    found: dict[str, str] = {}
    with log.open("w") as output:
        while left := [test for test in tests if test not in found]:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                start = start_hvd_ft if backend == "hvd_ft" else start_gloo
                words = ["--folder", name, "--backend", backend, "--seconds", str(options.seconds)]
                command = [sys.executable, "-W", "ignore", __file__, *words, "--tests", *left]
                start(command, rank_environment(options.num_proc), output)
                notes = [folder / f"{rank}.notes" for rank in range(options.num_proc)]
                ran = outcomes(notes)
            if not ran:
                sys.exit(f"compare_torch_tests: no rank has begun a test on {backend}: see {log}")
            found |= ran
    return found


def rank_environment(ranks: int) -> dict[str, str]:
    """Returns the environment of the ranks, as PyTorch's tests want it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOROVOD_")}
    environment |= {"WORLD_SIZE": str(ranks), "BACKEND": "gloo", "OMP_NUM_THREADS": "1"}
    environment["HOROVOD_FT_MAX_FAILURES"] = "0"  # a rank that dies has failed its test
    return environment


def start_gloo(command: Sequence[str], environment: dict[str, str], output: Any) -> None:
    """Runs a command as all ranks, without a launcher."""
    ranks = [
        subprocess.Popen(
            command,
            env=environment | {"RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        for rank in range(int(environment["WORLD_SIZE"]))
    ]
    for process in ranks:
        process.wait()


def start_hvd_ft(command: Sequence[str], environment: dict[str, str], output: Any) -> None:
    """Runs a command as all ranks of a job of hvd_ft."""
    job = [sys.executable, "-m", "hvd_ft.cli", "run", "-np", environment["WORLD_SIZE"]]
    null = subprocess.DEVNULL
    subprocess.run(
        [*job, *command], check=False, env=environment, stdin=null, stdout=output, stderr=output
    )


# ---------------------------------------------------------------- comparison
def all_tests() -> list[str]:
    """Returns the names of PyTorch's tests."""
    os.environ.update(rank_environment(2))
    return sorted(n for n in dir(tests_of(importlib.import_module(SUITE))) if n.startswith("test_"))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-np", "--num-proc", type=int, default=3, help="ranks (default 3)")
    parser.add_argument("-k", default="", help="only tests whose name has this")
    parser.add_argument("--seconds", type=float, default=120, help="a test hangs after so long")
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="folder for the output")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # these: for a rank
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    parser.add_argument("--tests", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for package in ("torch", "expecttest"):
        if importlib.util.find_spec(package) is None:
            parser.error(f"these tests need the package {package}; pip install {package}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs and compares; returns the exit code."""
    options = parse(arguments)
    if options.folder is not None:
        rank = int(os.environ.get("HOROVOD_RANK") or os.environ["RANK"])
        return be_rank(rank, options.folder, options.backend, options.tests, options.seconds)
    from rich.console import Console
    from rich.table import Column, Table

    options.out.mkdir(exist_ok=True)
    console = Console()
    table = Table(Column("test", overflow="fold"), "on hvd_ft", "excepted: reason")
    tests = [test for test in all_tests() if options.k in test]
    results = {}
    for backend in BACKENDS:
        log = options.out / f"torch-distributed-{backend}-{options.num_proc}.log"
        results[backend] = run(backend, tests, log, options)
        (log.with_suffix(".json")).write_text(json.dumps(results[backend], indent=1))
        console.print(f"{backend}: {count(results[backend])}; {log}")
    bad = not tests
    for test, outcome in differences(*(results[backend] for backend in BACKENDS)).items():
        bad |= test not in EXCEPTIONS
        table.add_row(test, outcome, EXCEPTIONS.get(test, ""))
    if table.row_count:
        console.print("Passes on gloo, not on hvd_ft:", table)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
