"""Writes docs/reference/ from the code: settings, commands, messages, schemas of what is JSON.

    make_reference.py            # after a change of one of them; a test compares

The pages are committed, so that they can be read without building the documentation.
"""

import argparse
import ast
import inspect
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["COLUMNS"] = "96"  # before argparse looks

import msgspec

from hvd_ft import cli
from hvd_ft.installed import support
from hvd_ft.job.settings import GROUPS, variables
from hvd_ft.page.server import PageState
from hvd_ft.status.flight_record import FlightRecord
from hvd_ft.status.snapshot import JobStatus

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hvd_ft"
FOLDER = ROOT / "docs" / "reference"
_NOTE = "<!-- made by scripts/make_reference.py: do not edit -->\n"
_NOT_PRINTED = (
    *("_setting", "_own", "_limit", "_network", "_transport"),
    *("compile", "add_argument", "add_parser", "ArgumentParser", "_add"),
)
# Code, and commands that are run.
_OTHER_STRINGS = ("import ", "from ", "ip ", "link ", "qdisc ", "filter ", "action ", "Example:")
_OF_PARSERS = ("help", "description", "epilog", "metavar", "title")
# What a reader was doing, by the folder of the code that says it.
_ERRORS = ("HvdFtError", "NotWrittenError", "Closed", "StopJob", "Stop", "fatal")
_GROUPS = {
    "install": "Installing: `hvdft build-horovod`, `hvdft patch`",
    "installed": "What has to be installed",
    "check": "`hvdft check`",
    "doctor": "`hvdft check`: what it finds of hosts",
    "mpi": "Intel MPI and its launcher",
    "members": "Hosts, and who is in a job",
    "job": "Starting a job: settings, files",
    "schedulers": "A scheduler's allocation",
    "launcher": "`hvdft run`, while it watches the job",
    "agent": "An agent",
    "shim": "A shim",
    "spares": "Warm spares",
    "tensorflow": "Your script, through `hvd_ft.tensorflow`",
    "torch": "Your script, through `hvd_ft.torch`",
    "worker": "Your script, through any of hvd_ft",
    "function.py": "`hvd_ft.run`: a job from Python",
    "p2p.py": "Messages between ranks",
    "ring": "The ring alone",
    "native": "The core, seen from Python",
    "csrc": "The core and Horovod's ft backend",
    "reports": "Reports and pictures",
    "status": "`hvdft status`",
    "page": "The status page",
    "checkpoint": "Checkpoints: reading them, `hvdft checkpoint`",
    "checkpointer": "Checkpoints: writing them",
    "driven_job.py": "Jobs that `hvdft bench` and `hvdft tune` start",
    "bench": "`hvdft bench`",
    "tune": "`hvdft probe` and `hvdft tune`",
    "cluster": "`hvdft cluster`",
    "system": "Files and processes",
    "cli.py": "The command line",
    "__init__.py": "The package",
}


def settings_page() -> str:
    """Returns the page of the settings, in groups."""
    rows: list[str] = []
    for group in GROUPS:
        rows += [f"## {group}", "", "| variable | default | meaning |", "|---|---|---|"]
        rows += [
            f'| <a id="{name.lower()}"></a>`{name}` | {told["shown"]} | {told["meaning"]} |'
            for name, told in ((name, each.metadata) for name, each in variables().items())
            if told["group"] == group
        ]
        rows.append("")
    return "\n".join(
        [
            _NOTE,
            "# Settings",
            "",
            "Settings are environment variables. `hvdft run` checks them, and how they fit "
            "together, before it starts anything. A variable whose name begins with `HOROVOD_FT_` "
            "and is not on this page is refused; the error suggests the nearest name. Times are "
            "in seconds; [time-outs](../timeouts.md) explains how they depend on each other.",
            "",
            *rows,
        ]
    )


def commands_page() -> str:
    """Returns the page of the command line: every command's help."""
    intro = (
        "Every command explains itself: `hvdft run --help`. Flags for experts are shown here, and "
        "by `hvdft run --help-all`."
    )
    parts = [_NOTE, "# Commands", "", intro, ""]
    for parser in cli.parser().every():
        parts += [f"## {parser.prog}", "", "```", parser.format_all().rstrip(), "```", ""]
    return "\n".join(parts)


def _words(node: ast.expr) -> str:
    """Returns the text of a string in the code; what is filled in is an ellipsis."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_words(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _words(node.left) + _words(node.right)
    return "…"


def _own_texts(tree: ast.AST) -> Iterator[ast.expr]:
    """Yields the strings of a file, each as a whole, except those that are never printed."""
    if isinstance(tree, ast.JoinedStr | ast.Constant):
        yield tree
        return
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add):
        yield tree
        return
    if isinstance(tree, ast.Call):
        name = getattr(tree.func, "id", getattr(tree.func, "attr", ""))
        if name in _NOT_PRINTED:
            return
    for child in ast.iter_child_nodes(tree):
        of_parser = isinstance(child, ast.keyword) and child.arg in _OF_PARSERS
        docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not of_parser and not docstring:
            yield from _own_texts(child)


def _of_python(path: Path) -> Iterator[str]:
    for node in _own_texts(ast.parse(path.read_text())):
        text = _words(node)
        if text.count(" ") > 3 and not text.lstrip().startswith(_OTHER_STRINGS):
            yield text


def python_errors(path: Path) -> Iterator[str]:
    """Yields the errors of a file: texts of exceptions for the user, and reasons to stop the job.

    Args:
        path: of the file.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in _ERRORS:
                yield from (_line(_words(part)) for part in node.args)


def _line(text: str) -> str:
    return re.sub(r"…+", "…", " ".join(text.split()))


def _of_c(path: Path) -> Iterator[str]:
    code = re.sub(r"//.*", "", path.read_text())
    for call in re.finditer(r"\b(?:fail\(HVDFT_\w+,|FtStop\(|Unsupported\(|stop\()", code):
        depth, end = 1, call.end()
        while depth and end < len(code):
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        literals = re.findall(r'"((?:[^"\\]|\\.)*)"(\s*\+|\s*)', code[call.end() : end])
        start = "the ft backend has no " if call.group().startswith("Unsupported") else ""
        text = start + "".join(part + ("…" if "+" in joined else "") for part, joined in literals)
        yield re.sub(r"%[-.*\d]*l*[a-z]?", "…", text)


def errors() -> dict[str, set[str]]:
    """Returns every error, by the file that has it."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix == ".py":
            texts = set(python_errors(path))
        elif path.suffix in (".cc", ".h"):
            texts = {_line(text) for text in _of_c(path)}
        else:
            continue
        found[path.relative_to(PACKAGE).as_posix()] = {text for text in texts if _is_text(text)}
    return found


def _is_text(line: str) -> bool:
    return len(re.sub(r"[^a-z]", "", line)) > 7


def _messages() -> dict[str, set[str]]:
    """Returns every message, by its group."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix == ".py":
            texts = _of_python(path)
        elif path.suffix in (".cc", ".h"):
            texts = _of_c(path)
        else:
            continue
        parts = path.relative_to(PACKAGE).parts
        group = parts[1] if parts[0] == "tools" else parts[0]
        for text in texts:
            line = _line(text)
            if _is_text(line):
                found.setdefault(group, set()).add(line)
    return found


def messages_page() -> str:
    """Returns the page of all messages."""
    parts = [
        _NOTE,
        "# Messages",
        "",
        "Every line that hvd_ft can print, or a part of one, without its prefix `hvdft:`, as the "
        "code has it; `…` stands for what is filled in. **Errors** end a command or the job, or "
        "are why something is not done: they name the thing, the reason and what to do, which may "
        "be what is filled in at the end. **Other lines** tell how the job goes and need none, "
        "or are parts of lines. Find yours with your browser's search, by words that are not "
        "filled in. "
        "[Troubleshooting](../troubleshooting.md) begins with what you see instead.",
        "",
    ]
    found = _messages()
    wrong = {text for texts in errors().values() for text in texts}
    for group, title in _GROUPS.items():
        if group in found:
            lines = sorted(found.pop(group), key=str.lower)
            parts += [f"## {title}", ""]
            for kind, are_errors in (("Errors", True), ("Other lines", False)):
                of_kind = [line for line in lines if (line in wrong) is are_errors]
                if of_kind:
                    parts += [f"{kind}:", "", *(f"- `` {line} ``" for line in of_kind), ""]
    if found:
        raise SystemExit(f"make_reference: no title for the messages of {', '.join(found)}")
    return "\n".join(parts)


def supported_page() -> str:
    """Returns the page of combinations in which the tests have passed."""
    known = sorted(support.tested())
    pythons = sorted({each.lines[2] for each in known})
    rows: dict[str, dict[tuple[int, int], str]] = {}
    for each in known:
        row = rows.setdefault(str(each).rpartition(",")[0], {})
        row[each.lines[2]] = f"tested ({each.python})"
    titles = ["TensorFlow and Keras", *(f"Python {python[0]}.{python[1]}" for python in pythons)]
    parts = [
        _NOTE + "# Supported combinations",
        "A combination is *tested* where `make tested` has run the tests of TensorFlow and Keras, "
        "and all of them passed. It is expected to work with another last number of one of its "
        "versions. `hvdft check` names the combination that is installed, and says what is known "
        "of it. PyTorch needs none of them; see the [how-to](../how-to/pytorch.md).",
        _table(
            titles,
            [[name, *(row.get(p, "not tested") for p in pythons)] for name, row in rows.items()],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def status_schema() -> str:
    """Returns the JSON schema of `hvdft status --json`."""
    return _schema(JobStatus)


def flight_schema() -> str:
    """Returns the JSON schema of a flight record."""
    return _schema(FlightRecord)


def page_schema() -> str:
    """Returns the JSON schema of the status page's /state.json."""
    return _schema(PageState)


def _schema(kind: type) -> str:
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
    return json.dumps(_unindented(made), indent=1, ensure_ascii=False) + "\n"


def _unindented(node: Any) -> Any:
    """Returns a schema whose descriptions are docstrings without their indentation."""
    if isinstance(node, list):
        return [_unindented(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: inspect.cleandoc(each)
        if key == "description" and isinstance(each, str)
        else _unindented(each)
        for key, each in node.items()
    }


PAGES = {
    "settings.md": settings_page,
    "cli.md": commands_page,
    "messages.md": messages_page,
    "supported.md": supported_page,
    "status.schema.json": status_schema,
    "flight_record.schema.json": flight_schema,
    "page.schema.json": page_schema,
}


def main() -> None:
    """Writes the pages."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make())


if __name__ == "__main__":
    main()
