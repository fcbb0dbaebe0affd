"""Breaks the code on purpose, one way after the other, and sees whether a test notices.

Example: scripts/mutants.py --only life-line
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "scripts" / "mutants.toml"
LEFT_OUT = (".git", ".venv", ".cache", "build", "out", "__pycache__", "*.egg-info")
LIMIT_SECONDS = 900.0  # for the tests of one mutant
NO_TESTS = 5  # pytest's exit code


@dataclass(frozen=True)
class Mutant:
    """One way to break the code.

    Attributes:
        name: what is broken, in words.
        file: where, from the checkout's top.
        old: the text that is replaced; it is there once.
        new: what it is replaced by.
        tests: pytest's arguments, with which a test has to fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def read_list() -> list[Mutant]:
    """Reads the list, and checks that it fits the code.

    Raises:
        SystemExit: a text is not there, or more than once, or a test file is missing.
    """
    with LIST.open("rb") as file:
        entries = tomllib.load(file)["mutant"]
    mutants = [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]
    for mutant in mutants:
        if problem := _problem(mutant):
            raise SystemExit(f"mutants: {mutant.name!r} {problem}: bring {LIST.name} up to date")
    return mutants


def _problem(mutant: Mutant) -> str:
    path = ROOT / mutant.file
    count = path.read_text().count(mutant.old) if path.is_file() else 0
    if count != 1:
        return f"is to replace a text that is {count} times in {mutant.file}"
    files = [word for word in mutant.tests if word.startswith("tests/")]
    if not files or not all((ROOT / word.partition("::")[0]).is_file() for word in files):
        return "names no test file that is there"
    return ""


def try_out(mutant: Mutant, tree: Path) -> tuple[str, float]:
    """Applies a mutant in a copy of the checkout, and takes it back.

    Returns:
        What became of it (`found`, or why not), and the seconds that took.
    """
    file, begin = tree / mutant.file, time.monotonic()
    whole = file.read_text()
    file.write_text(whole.replace(mutant.old, mutant.new))
    try:
        if mutant.file.startswith("hvd_ft/") and file.suffix in (".cc", ".h") and _build(tree):
            outcome = "does not compile"
        else:
            outcome = _test(mutant, tree)
    except subprocess.TimeoutExpired:
        outcome = f"NO END in {LIMIT_SECONDS:.0f} s"  # this limit is no test
    finally:
        file.write_text(whole)
    return outcome, time.monotonic() - begin


def _build(tree: Path) -> int:
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    # As strict as the core's tests: one that these cannot compile is not found by them.
    return _run(command, tree, CXXFLAGS="-Werror")


def _test(mutant: Mutant, tree: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    code = _run([*command, *mutant.tests], tree)
    if code == NO_TESTS:
        return "no test ran"
    return "found" if code else "NOT FOUND"


def _run(command: list[str], tree: Path, **variables: str) -> int:
    with subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), **variables},  # not the installed checkout
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    ) as process:
        try:
            return process.wait(LIMIT_SECONDS)
        finally:  # a program that a test runs may have no end either
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _place(count: int) -> int:
    """Returns where this commit begins: landing after landing all are tried."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    return int(hashlib.sha256(commit.stdout.encode()).hexdigest(), 16) % count


def main() -> int:
    """Tries all mutants; returns 1 if one was not found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", metavar="TEXT", action="append", help="those with TEXT in their names"
    )
    parser.add_argument(
        "--minutes", type=float, help="so long, beginning at a place that the commit chooses"
    )
    options = parser.parse_args()
    only = options.only or [""]
    chosen = [mutant for mutant in read_list() if any(text in mutant.name for text in only)]
    if not chosen:
        parser.error(f"--only {' '.join(only)}: no mutant has that in its name")
    deadline = float("inf")
    if options.minutes is not None:
        begin = _place(len(chosen))
        chosen = chosen[begin:] + chosen[:begin]
        deadline = time.monotonic() + 60 * options.minutes
    table = Table("mutant", "file", "outcome", "seconds")
    missed = tried = 0
    with tempfile.TemporaryDirectory(prefix="hvdft-mutants-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("mutants", total=len(chosen))
            for mutant in chosen:
                if time.monotonic() >= deadline:
                    break
                tried += 1
                progress.update(task, description=mutant.name)
                outcome, seconds = try_out(mutant, tree)
                if outcome != "found":  # a test that notices now and then is one to be mended
                    again, more = try_out(mutant, tree)
                    seconds += more
                    outcome = (
                        f"{outcome}, then {again}" if again != "found" else "found the second time"
                    )
                missed += not outcome.startswith("found")
                table.add_row(mutant.name, mutant.file, outcome, f"{seconds:.0f}")
                # Without a terminal there is no bar, and the table comes at the end.
                progress.console.print(f"{outcome}: {mutant.name} ({seconds:.0f} s)", markup=False)
                progress.advance(task)
    Console().print(table)
    print(f"{tried - missed} of {tried} found; there are {len(chosen)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
