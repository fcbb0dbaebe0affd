"""Keeps the code that AutoGraph generates in memory.

AutoGraph writes the code to a file in TMPDIR and imports that file, which also leaves byte code
there. It removes only the source file, and only if the process ends by itself.

TensorFlow 2.15 has no public name for this.
"""

import importlib.util
import itertools
import linecache
import sys
from importlib.abc import SourceLoader
from types import ModuleType

from tensorflow.python.autograph.pyct import loader

_numbers = itertools.count()


class _Loader(SourceLoader):
    """Imports one module, and lets `inspect` and tracebacks read its source."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str | bytes) -> bytes:
        if path != self._path:
            raise FileNotFoundError(path)  # byte code, for example
        return self._source.encode()


def keep_generated_code_in_memory() -> None:
    """Makes AutoGraph write no files from now on."""
    loader.load_source = _load_source


def _load_source(source: str, delete_on_exit: bool) -> tuple[ModuleType, str]:
    name = f"__autograph_generated_file_{next(_numbers)}"
    path = f"<{name}>.py"
    spec = importlib.util.spec_from_loader(name, _Loader(path, source), origin=path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    module.__file__ = path
    spec.loader.exec_module(module)
    sys.modules[name] = module
    linecache.lazycache(path, vars(module))  # otherwise inspect would look for the file
    return module, path
