"""Stands for Lightning and Accelerate, so that hvd_ft's own rules about them run without them.

Every module of these packages is there, and has any class that is asked for: an empty one.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import hvd_ft.torch

_PACKAGES = ("lightning", "torchmetrics", "accelerate")
_OURS = ("hvd_ft.torch.lightning", "hvd_ft.torch.accelerate")


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {})
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in _PACKAGES:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def _theirs(name: str) -> bool:
    return name.partition(".")[0] in _PACKAGES or name.startswith(_OURS)


@contextmanager
def stand_ins() -> Iterator[None]:
    """Within it, imports of these packages give stand-ins; hvd_ft's modules are imported anew."""
    before = {name: module for name, module in sys.modules.items() if _theirs(name)}
    attributes = dict(vars(hvd_ft.torch))
    finder = _Finder()
    for name in before:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _theirs(name)]:
            del sys.modules[name]
        sys.modules.update(before)
        for name in {name.rpartition(".")[2] for name in _OURS} & vars(hvd_ft.torch).keys():
            delattr(hvd_ft.torch, name)
        vars(hvd_ft.torch).update(attributes)


def imported(name: str) -> Any:
    """Returns a module of hvd_ft, such as `lightning.fetched`, over the stand-ins."""
    with stand_ins():
        return importlib.import_module(f"hvd_ft.torch.{name}")
