"""The rules of the layout: who may use what (ARCHITECTURE.md), and what has to be there."""

import ast
import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

from hvd_ft import libraries

PACKAGE = ROOT / "hvd_ft"
CSRC = PACKAGE / "csrc"
PYTHON = sorted(PACKAGE.rglob("*.py"))
# What newcomers read: the first page, and those that it leads to.
DESIGN = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "internals").glob("*.md"))]
CPP = sorted(path for path in CSRC.rglob("*") if path.suffix in (".cc", ".h"))

# The plan of the house: each room of hvd_ft/, bottom up, and the rooms that it may import.
MAY_IMPORT = {
    "errors": "",
    "libraries": "",
    "native": "libraries errors",
    "system": "native errors",
    "members": "errors",
    "job": "members system native libraries errors",
    "checkpoint": "system errors",
    "worker": "checkpoint system native errors",
    "checkpointer": "worker checkpoint job system native errors",
    "p2p": "worker job native errors",
    "function": "system errors",
    "spares": "worker job system native errors",
    "mpi": "job system native libraries errors",
    "installed": "mpi system native libraries errors",
    "reports": "job system native errors",
    "status": "reports job members system native errors",
    "page": "status job system native errors",
    "shim": "spares mpi job members system native errors",
    "ring": "mpi job system native errors",
    "schedulers": "mpi members errors",
    "doctor": "worker installed mpi job system native errors",
    "launcher.machine": "members job system native errors",
    "launcher": "launcher.machine status doctor schedulers checkpoint installed mpi reports job \
        members system native libraries errors",
    "tensorflow": "worker system native errors",
    "torch": "p2p worker system native errors",
    "agent": "worker checkpointer checkpoint shim spares ring installed mpi status job system \
        native errors",
    # Tools: nothing of a running job imports them.
    "tools": "native errors",
    "tools.install": "installed mpi system errors",
    "tools.cluster": "members system errors",
    "tools.check": "launcher doctor installed mpi job members system native libraries errors",
    "tools.check.worker": "tensorflow torch tools.check",
    "tools.tune": "tools launcher ring installed mpi reports job members system native errors",
    "tools.bench": "tools launcher installed mpi reports job system native errors",
    "tools.bench.workers": "tools.bench tensorflow torch job system native errors",
    "__init__": "function native",
    "cli": "agent checkpoint job members launcher reports status system native errors tools.bench \
        tools.check tools.cluster tools.install tools.tune",
}
# The same for the C++ of hvd_ft/csrc/; one file of a room can be named too.
MAY_INCLUDE = {
    "include": "",
    "protocol": "base/shared.h hvd_ft_limits.h",
    "base": "include",
    "arena": "protocol base include",
    "worker": "arena protocol base include",
    "oplog": "arena protocol base include",
    "replication": "oplog arena protocol base include",
    "agent": "oplog arena base include",
    "observer": "arena include protocol",
    "preload": "",
    "mpi": "replication oplog arena protocol base include",
}
OF_FRAMEWORKS = (
    "hvd_ft/tensorflow/",
    "hvd_ft/torch/",
    "hvd_ft/tools/bench/workers/",
    "hvd_ft/tools/check/worker.py",
)
TOP = "hvd_ft patches scripts experiments tests docs setup.py CMakeLists.txt Makefile README.md \
    LICENSE NOTICE CONTRIBUTING.md ARCHITECTURE.md CHANGELOG.md requirements.txt \
    requirements-torch.txt requirements-clients.txt .ci/run"


@functools.cache
def imports(path: Path) -> set[str]:
    """Returns the modules that a file imports, a `from` import with each of its names too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def importers(module: str) -> list[str]:
    """Returns the files of the package that import a module or something of it."""
    return [
        str(path.relative_to(ROOT))
        for path in PYTHON
        if any(name == module or name.startswith(f"{module}.") for name in imports(path))
    ]


def tracked() -> list[Path]:
    """Returns the text files of the checkout that git does not ignore."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in files if path.is_file() and b"\0" not in path.read_bytes()]


def room_of(parts: tuple[str, ...], rooms: dict[str, str]) -> str:
    """Returns the room of a module: its longest folder, or name, that the table has; else ""."""
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in names if name in rooms), "")


def test_all_lines_have_one_prefix() -> None:
    printed = re.compile(r"""(?<!\.)print\(\s*f?["']\n?(hvdft|hvd_ft): """)
    assert printed.search('print(f"hvdft: one")')
    for path in PYTHON:
        text = path.read_text()
        assert not printed.search(text), f"{path}: use say()"
        assert not re.search(r"""["']hvd_ft: """, text), path


def test_a_line_is_written_at_once() -> None:
    """MPI's launcher merges the ranks' output: `print` may write the newline separately."""
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text())):
            is_print = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
            assert not is_print, f"{path}:{node.lineno} prints; use system/say.py"


def test_one_room_knows_the_variables_of_mpi() -> None:
    """Tools may set them: they start processes under MPI themselves, as those that they measure."""
    name = re.compile(r"(I_MPI|HYDRA|HYDI|MPI_LOCAL|PMI|PMIX)[A-Z]*_[A-Z_]+")
    # The guards stand alone in a worker.
    others = {"worker/mpi4py_guard.py", "worker/mpi_guard/mpi4py/__init__.py"}
    found = {
        str(path.relative_to(PACKAGE))
        for path in PYTHON
        if path.relative_to(PACKAGE).parts[0] not in ("mpi", "tools")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and name.fullmatch(str(node.value))
    }
    assert found <= others


def test_one_folder_calls_c() -> None:
    assert importers("ctypes") == []
    assert importers("hvd_ft.native._abi") == ["hvd_ft/native/abi.py"]
    users = importers("hvd_ft.native.abi.ffi")
    assert [name for name in users if not name.startswith("hvd_ft/native/")] == []
    assert "hvd_ft/native/core.py" in users


@pytest.mark.parametrize(
    "module", ["tensorflow", "keras", "torch", "horovod", "lightning", "accelerate"]
)
def test_few_folders_import_a_framework(module: str) -> None:
    assert [name for name in importers(module) if not name.startswith(OF_FRAMEWORKS)] == []


def test_the_frameworks_do_not_know_each_other() -> None:
    of_torch = {*importers("torch"), *importers("horovod.torch")}
    of_tensorflow = {*importers("tensorflow"), *importers("horovod.tensorflow")}
    both = of_torch & of_tensorflow
    assert both == {"hvd_ft/tools/check/worker.py"}


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_folder_imports_what_lies_below_it(path: Path) -> None:
    room = room_of(path.relative_to(PACKAGE).with_suffix("").parts, MAY_IMPORT)
    used = {
        room_of(tuple(name.split(".")[1:]), MAY_IMPORT)
        for name in imports(path)
        if name.startswith("hvd_ft.")
    }
    assert used - {room, ""} <= set(MAY_IMPORT[room].split()), f"{room} imports {used}"


@pytest.mark.parametrize("path", CPP, ids=lambda path: str(path.relative_to(CSRC)))
def test_a_folder_includes_what_lies_below_it(path: Path) -> None:
    room = path.relative_to(CSRC).parts[0]
    included = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
    if room == "horovod":  # compiled inside of Horovod, where all of it lies in one folder
        ours = {name for name in included if not name.startswith("../")}
        assert ours <= {"hvd_ft.h", *(file.name for file in (CSRC / "horovod").rglob("*.h"))}
        return
    allowed = {room, *MAY_INCLUDE[room].split()}
    for name in set(included) - {"stepped.h"}:  # of tests/core, which compile some code anew
        folder = str(Path(name).parent) if "/" in name else "include"
        assert folder in allowed or name in allowed, f"{room} includes {name}"


@pytest.mark.parametrize("room", ["members", "launcher/machine"])
def test_rules_and_machines_do_no_io(room: str) -> None:
    """So a test can drive them through anything: see tests/launcher/job_world.py."""
    words = {"__future__", "collections", "dataclasses", "enum", "math", "re", "signal", "typing"}
    files = sorted((PACKAGE / room).glob("*.py"))
    assert len(files) > 5
    for path in files:
        assert {name.split(".")[0] for name in imports(path)} <= words | {"hvd_ft"}, path
        calls = r"(?<!\.)\b(say|open|print)\(|\bsignal\.(signal|alarm|pthread_kill)\("
        assert not re.search(calls, path.read_text().replace("def say(", "")), path


def test_nothing_unpickles_or_evaluates() -> None:
    assert importers("pickle") + importers("marshal") + importers("shelve") == []
    assert importers("cloudpickle") == ["hvd_ft/function.py"]  # what it has signed itself
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), f"{path}:{node.lineno}"


def test_json_is_read_in_one_place() -> None:
    """It refuses whatever it is by one error; a manifest has a line for each reason."""
    decodes = re.compile(r"\bjson\.(loads?|decode)\(|\bmsgspec\.convert\(")
    found = {path.name for path in PYTHON if decodes.search(path.read_text())}
    assert found == {"json_text.py", "wire.py", "manifest.py"}


def test_one_cpp_file_includes_mpi() -> None:
    pattern = re.compile(r"#include\s*[<\"]mpi[.]")
    assert [path.name for path in CPP if pattern.search(path.read_text())] == ["endpoint.cc"]


def test_the_library_needs_no_mpi() -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf (binutils) was not found")
    table = subprocess.run(
        ["readelf", "-dWs", "--dyn-syms", libraries.library_path()],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert "hvdft_version" in table
    assert not re.search(r"\bMPIX?_|libmpi", table)


def test_the_core_knows_no_python() -> None:
    assert [path for path in CPP if "Python.h" in path.read_text()] == []


def test_what_has_to_be_there_is_there() -> None:
    assert [name for name in TOP.split() if not (ROOT / name).exists()] == []


@functools.cache
def files() -> frozenset[str]:
    """Returns the paths of all files that documents name, from the root's slash on."""
    folders = (ROOT / name for name in ("hvd_ft", "tests", "scripts"))  # no environment's
    found = (path for folder in folders for path in folder.rglob("*.*"))
    return frozenset(f"/{path.relative_to(ROOT)}" for path in found)


@pytest.mark.parametrize("document", DESIGN, ids=lambda path: path.name)
def test_the_architecture_names_files_that_are_there(document: Path) -> None:
    named = re.findall(r"`([\w/]+/\w+\.(?:py|cc|h|toml|txt))`", document.read_text())
    assert named
    missing = [name for name in named if not any(file.endswith(f"/{name}") for file in files())]
    assert missing == []


@pytest.mark.parametrize("document", DESIGN, ids=lambda path: path.name)
def test_the_architecture_is_wrapped(document: Path) -> None:
    """A line of 339 characters is unreadable in an editor, and in a diff."""
    code = False
    for number, line in enumerate(document.read_text().splitlines(), 1):
        code ^= line.startswith("```")
        assert code or line.startswith("|") or len(line) <= 100, f"{document}:{number}"


def test_the_architecture_is_read_in_one_go() -> None:
    assert DESIGN[0].stat().st_size <= 15 << 10, "move details to docs/internals/"


def test_the_architecture_leads_to_every_page_of_internals() -> None:
    leads = (ROOT / "ARCHITECTURE.md").read_text()
    site = (ROOT / "mkdocs.yml").read_text()
    for page in DESIGN[1:]:
        name = str(page.relative_to(ROOT))
        assert f"({name})" in leads and f": {name}\n" in site, name


def test_scripts_call_functions_that_the_core_has() -> None:
    """They find them by name: a rename shows only when they run."""
    headers = "".join(path.read_text() for path in (CSRC / "include").glob("*.h"))
    known = set(re.findall(r"\bhvdft_\w+", headers))
    for folder in ("tests", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            called = set(re.findall(r"\.(hvdft_\w+)", path.read_text()))
            assert called <= known, path


def test_every_experiment_says_what_it_asks() -> None:
    within = (path for path in (ROOT / "experiments").iterdir() if path.is_dir())
    folders = [path for path in within if path.name != "__pycache__"]  # Python's own, of a run
    assert [str(path) for path in folders if not (path / "README.md").is_file()] == []


def test_no_two_test_modules_have_one_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)  # pytest would leave one of them out


def test_files_stay_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in PYTHON + CPP
        if (lines := len(path.read_text().splitlines())) > 500
    ]
    assert long == []


def test_a_class_is_one_thing() -> None:
    """One with more than 20 attributes is several, each of which wants a name of its own."""
    for path in PYTHON:
        nodes = ast.walk(ast.parse(path.read_text()))
        for cls in (node for node in nodes if isinstance(node, ast.ClassDef)):
            own = {
                node.attr
                for node in ast.walk(cls)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and getattr(node.value, "id", "") == "self"
            }
            where = f"{path.relative_to(PACKAGE)} {cls.name}"
            assert len(own) <= 20, f"{where} has {len(own)} attributes"


def test_no_path_or_address_of_a_machine() -> None:
    pattern = re.compile(
        r"/(?:home|root|Users|work)/[\w.]|/tmp/[w]\b|/opt/py[p]i|https?:\S+/[s]imple\b"
    )
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked()
        if (match := pattern.search(path.read_text(errors="replace")))
    ]
    assert found == []


def test_every_place_names_the_same_intel_mpi() -> None:
    files = ("setup.py", "pyproject.toml", "requirements.txt")
    pattern = re.compile(r'(?:impi-(?:rt|devel)==|MPI_VERSION = ")([\d.]+)')
    found = {name: set(pattern.findall((ROOT / name).read_text())) for name in files}
    assert len(set.union(*found.values())) == 1, found
    assert all(found.values()), found
