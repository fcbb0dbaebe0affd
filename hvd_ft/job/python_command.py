"""Training commands that a warm spare can run: a script or a module of this interpreter."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hvd_ft.errors import HvdFtError


@dataclass(frozen=True)
class PythonCommand:
    """The program of `python [-u] script.py …` or `python [-u] -m module …`.

    Attributes:
        target: the script's path, or the module's name.
        is_module: which of the two.
        arguments: the program's arguments.
    """

    target: str
    is_module: bool
    arguments: Sequence[str]

    @classmethod
    def parse(cls, command: Sequence[str]) -> "PythonCommand":
        """Reads a training command.

        Args:
            command: its words.

        Raises:
            HvdFtError: a spare cannot run it.
        """
        program, *words = command
        if not _is_this_python(program):
            raise _refused(f"{program} is not {sys.executable}")
        while words[:1] == ["-u"]:
            words = words[1:]
        if words[:1] == ["-m"] and len(words) > 1:
            return cls(words[1], True, words[2:])
        if not words or words[0].startswith("-"):
            raise _refused(f"{words[0] if words else 'an interpreter without a script'} is given")
        if os.path.isdir(words[0]):
            raise _refused(f"{words[0]} is a directory")
        return cls(words[0], False, words[1:])

    def source(self, cwd: str) -> Path | None:
        """Returns the file that Python would run from `cwd`, if it is the user's own."""
        path = Path(cwd, *self.target.split(".")) if self.is_module else Path(cwd, self.target)
        candidates = [path.with_name(f"{path.name}.py"), path / "__main__.py"]
        found = (p for p in (candidates if self.is_module else [path]) if p.is_file())
        return next(found, None)

    def import_directory(self, cwd: str) -> str:
        """Returns what Python would put first into sys.path when started in `cwd`."""
        if self.is_module:
            return cwd
        return os.path.dirname(os.path.realpath(os.path.join(cwd, self.target)))


def _is_this_python(program: str) -> bool:
    found = shutil.which(program)
    # In a virtual environment python and python3 are links to one program outside of it.
    return (
        found is not None
        and os.path.realpath(found) == os.path.realpath(sys.executable)
        and os.path.samefile(os.path.dirname(found), os.path.dirname(sys.executable))
    )


def _refused(reason: str) -> HvdFtError:
    return HvdFtError(
        f"--spares needs the command python [-u] script.py … or python [-u] -m module …, of the "
        f"Python that hvdft runs in, but {reason}: change it or leave --spares out"
    )
