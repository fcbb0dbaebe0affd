"""A job's settings are read once, and a flag's way through the launcher is a line."""

import ast
import functools
from pathlib import Path

from conftest import ROOT

PACKAGE = ROOT / "hvd_ft"


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def callers(name: str, under: str = "launcher") -> set[str]:
    """Returns `file function` of each function that calls a name."""
    return {
        f"{path.relative_to(PACKAGE)} {function.name}"
        for path in (PACKAGE / under).rglob("*.py")
        for function in ast.walk(tree(path))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name
    }


def test_the_settings_of_a_job_are_read_in_one_function() -> None:
    # Of another command, and those of a file before a job is described with them.
    others = {"launcher/clean.py clean", "launcher/tuning_file.py check_settings"}
    assert callers("Settings.from_env") - others == {"launcher/job.py resolve"}
    clean = {"launcher/clean.py clean_hosts"}
    assert callers("mpi_environment") - clean == {"launcher/job.py _environment"}
    assert callers("_environment") & {"launcher/job.py resolve"}


def test_a_job_is_resolved_where_it_is_described_and_handed_on() -> None:
    """What a command calls takes a `ResolvedJob`; a part of a job is `but` on other hosts."""
    assert callers("resolve", "") == {
        "launcher/job.py but",
        "launcher/command.py _run",
        "tools/bench/training.py _whole_run",
        "tools/check/doctor.py _environment",
        "tools/check/two_ranks.py main",
        "tools/tune/probe.py _run",
    }
    assert callers("self._whole.but") | callers("whole.but") | callers("resolved.but") == {
        f"launcher/resizing.py {name}" for name in ("__init__", "_look_up", "_part")
    }


def test_the_flags_of_resizing_are_read_once() -> None:
    """docs/internals/processes.md draws the way of --min-np from there on."""
    flags = {f"options.{name}" for name in ("min_np", "max_np", "in_place", "elastic_timeout")}
    readers = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in flags
    }
    assert readers == {"launcher/resizing_flags.py"}
    assert callers("limits_of") == {"launcher/command.py _run"}
