"""Applies the patches in `patches/` to an unpacked tree or an installed package.

An installed package is patched in place: `hvdft patch`. A file's state (released or patched)
follows from the hash that pip has recorded: it matches either the file or the file with the patch
reverted. So no state has to be stored, and a file with other changes is left alone.
"""

import base64
import os
import shutil
import tempfile
from enum import Enum
from hashlib import sha256
from importlib import metadata
from pathlib import Path, PurePosixPath

import patch_ng

from hvd_ft.errors import HvdFtError
from hvd_ft.installed.patch_files import patches

PACKAGE, VERSION = "tensorflow_estimator", "2.15.0"  # the package that `hvdft patch` patches


class State(Enum):
    """The state of an installed package."""

    STOCK = "not patched"
    MIXED = "patched in part"  # the patching process was killed
    PATCHED = "patched"


def apply_patch(patch: Path, tree: Path, what: str) -> None:
    """Applies a patch to an unpacked tree.

    Args:
        patch: its file.
        tree: the folder in which its paths begin.
        what: a name of the tree, for the error.

    Raises:
        HvdFtError: the patch does not apply.
    """
    parsed = patch_ng.fromfile(str(patch))
    if not parsed or not parsed.apply(strip=1, root=str(tree)):
        raise HvdFtError(
            f"{patch.name} does not apply to {what}; restore the file, or create the patch again"
        )


class InstalledPackage:
    """The package in the active environment that `hvdft patch` patches.

    Raises:
        HvdFtError: the package is absent, is another release, or has other changes.
    """

    def __init__(self) -> None:
        self._patches = patches(f"{PACKAGE}-{VERSION}")
        names = _targets(self._patches)
        released = _released_hashes(names)
        self._root = Path(str(metadata.distribution(PACKAGE).locate_file("")))
        self._found = {name: self._read(name) for name in names}
        with tempfile.TemporaryDirectory(prefix="hvdft-") as scratch:
            self._stock = {
                name: self._taken_back(name, data, released[name], Path(scratch))
                for name, data in self._found.items()
            }
            self._patched = self._applied(Path(scratch))

    @property
    def state(self) -> State:
        """The package's state when it was found."""
        if self._found == self._stock:
            return State.STOCK
        return State.PATCHED if self._found == self._patched else State.MIXED

    def apply(self) -> int:
        """Patches each file that is not patched yet, atomically; returns their number."""
        return self._become(self._patched)

    def revert(self) -> int:
        """Restores each file to its release, atomically; returns their number."""
        return self._become(self._stock)

    def _become(self, wanted: dict[str, bytes]) -> int:
        changed = [name for name, data in wanted.items() if self._found[name] != data]
        for name in changed:
            try:
                _replace(self._root / name, wanted[name])
            except OSError as error:
                raise HvdFtError(
                    f"{self._root / name} cannot be replaced ({error.strerror}); "
                    "run hvdft patch as the user who owns the environment"
                ) from None
            self._found[name] = wanted[name]
        return len(changed)

    def _read(self, name: str) -> bytes:
        try:
            return (self._root / name).read_bytes()
        except OSError as error:
            raise HvdFtError(
                f"{self._root / name} cannot be read ({error.strerror}); {_REINSTALL}"
            ) from None

    def _taken_back(self, name: str, data: bytes, released: str, scratch: Path) -> bytes:
        """Returns the released contents of a file, from its present contents."""
        if _hash(data) == released:
            return data
        copy = scratch / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
        for patch in reversed(self._patches):
            parsed = patch_ng.fromfile(str(patch))
            parsed.items = [item for item in parsed.items if _target(item) == name]
            if parsed.items and not parsed.revert(strip=1, root=str(scratch)):
                break
        if _hash(copy.read_bytes()) != released:
            raise HvdFtError(
                f"{self._root / name} is neither what {PACKAGE} {VERSION} has nor what this hvd_ft "
                f"makes of it, so it is left alone; {_REINSTALL}"
            )
        return copy.read_bytes()

    def _applied(self, scratch: Path) -> dict[str, bytes]:
        for name, data in self._stock.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(data)
        for patch in self._patches:
            apply_patch(patch, scratch, f"{PACKAGE} {VERSION}")
        return {name: (scratch / name).read_bytes() for name in self._stock}


_REINSTALL = f"run: pip install --force-reinstall --no-deps {PACKAGE}=={VERSION}"


def _targets(files: list[Path]) -> list[str]:
    """The files that the patches change, as paths below the folder of packages."""
    items = [item for patch in files for item in patch_ng.fromfile(str(patch)).items]
    return list(dict.fromkeys(map(_target, items)))


def _target(item: patch_ng.Patch) -> str:
    # The library drops the prefixes `a/` and `b/` in some formats and keeps them in others.
    return str(item.target.decode()).removeprefix("b/")


def _released_hashes(names: list[str]) -> dict[str, str]:
    """The files' hashes, which pip recorded when it installed them."""
    try:
        found = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise HvdFtError(
            f"{PACKAGE} was not found; run: pip install {PACKAGE}=={VERSION}"
        ) from None
    if found.version != VERSION:
        raise HvdFtError(
            f"{PACKAGE} is {found.version}, and the patch is for {VERSION}; "
            f"run: pip install {PACKAGE}=={VERSION}"
        )
    noted = {
        PurePosixPath(file).as_posix(): file.hash.value
        for file in found.files or ()
        if file.hash is not None and file.hash.mode == "sha256"
    }
    missing = [name for name in names if name not in noted]
    if missing:
        raise HvdFtError(
            f"{PACKAGE}'s list of files has no hash of {missing[0]}, so it cannot be told whether "
            f"it is as released; {_REINSTALL}"
        )
    return {name: noted[name] for name in names}


def _hash(data: bytes) -> str:
    """Returns a hash as in a wheel's list of files."""
    return base64.urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()


def _replace(path: Path, data: bytes) -> None:
    """Replaces a file atomically: a reader sees the old or the new file, never a part.

    If pip has linked the file to a cache, the cached file stays unchanged.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
