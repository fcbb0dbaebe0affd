"""The imports of a script that a spare may execute beforehand: those of installed packages."""

import ast
import importlib.util
import os
import site
import sysconfig
from collections.abc import Iterable
from pathlib import Path


def imported_modules(source: Path, directory: str) -> list[str]:
    """Finds what a script, and the user's modules that it imports, import at their top level.

    Args:
        source: the script's file.
        directory: what the script has first in sys.path; what is found there is the user's.

    Returns:
        Absolute module names, `from` imports without their names. None for a file that cannot be
        parsed; Python will report the error.
    """
    found: dict[str, None] = {}
    sources = [source]
    for file in sources:
        for name in _imports(file):
            if name not in found:
                found[name] = None
                path = Path(directory, *name.split("."))
                files = [path.with_name(f"{path.name}.py"), path / "__init__.py"]
                sources += [file for file in files if file.is_file()]
    return list(found)


def _imports(file: Path) -> list[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    names = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.append(node.module)
    return names


def installed(modules: Iterable[str], directory: str) -> list[str]:
    """Chooses modules whose import has no side effects that belong to the script.

    Args:
        modules: absolute names.
        directory: what the script has first in sys.path; what is found there is the user's.

    Returns:
        Those that come from site-packages, in the same order.
    """
    return [
        name
        for name in modules
        if not is_in(directory, top := name.partition(".")[0]) and _is_installed(top)
    ]


def is_in(directory: str, name: str) -> bool:
    """Returns whether a directory in sys.path has a module of that name."""
    path = os.path.join(directory, name)
    return os.path.isfile(f"{path}.py") or os.path.isfile(os.path.join(path, "__init__.py"))


def _is_installed(name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders |= {site.getusersitepackages()} if site.ENABLE_USER_SITE else set()
    origin = spec.origin if spec else None
    return origin is not None and any(origin.startswith(f"{folder}{os.sep}") for folder in folders)
