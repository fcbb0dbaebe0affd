"""The sources of the patched Horovod, and the key that identifies a build of them.

The key is a hash over everything that goes into the wheel. The build writes it into the wheel,
beside the frameworks that it has bindings for; comparing it with `build_key()` shows whether the
installed Horovod fits this hvd_ft, without importing Horovod.
"""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hvd_ft.errors import HvdFtError
from hvd_ft.installed.frameworks import FRAMEWORKS, NEWER, Framework, fitting, is_newer, named
from hvd_ft.installed.patch_files import patches as patches_of
from hvd_ft.system.distributions import version_of
from hvd_ft.system.json_text import read_json

HOROVOD_VERSION = "0.28.1"
SDIST_SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"

FT_FOLDER = "horovod/common/ft"  # ours, inside Horovod
MARKER = f"{FT_FOLDER}/BUILD.json"

_CSRC = Path(__file__).resolve().parents[1] / "csrc"


def patches() -> list[Path]:
    """Returns the patches to Horovod's own files, in the order in which they apply.

    The last ones are for TensorFlow 2.21. They apply to a build for 2.15 too, but are not needed
    there, so that build stays as it is.
    """
    release = f"horovod-{HOROVOD_VERSION}"
    more = patches_of(f"{release}-tensorflow-{NEWER}") if is_newer() else []
    return [*patches_of(release), *more]


def sources() -> list[Path]:
    """Returns the files that the build copies into `FT_FOLDER`."""
    folder = _CSRC / "horovod"
    files = [path for path in folder.rglob("*") if path.suffix in (".h", ".cc")]
    return [*sorted(files, key=lambda path: path.name), _CSRC / "include" / "hvd_ft.h"]


@dataclass(frozen=True)
class Build:
    """A Horovod that hvd_ft has built.

    Attributes:
        key: in hex; "" if hvd_ft did not build it.
        frameworks: keys of the frameworks that it has bindings for.
    """

    key: str
    frameworks: tuple[str, ...]


def build_key(frameworks: Sequence[Framework] | None = None) -> str:
    """Returns the key of the Horovod that this hvd_ft needs in this environment, in hex.

    Args:
        frameworks: that it has bindings for; those that are installed by default.
    """
    digest = hashlib.sha256(SDIST_SHA256.encode())
    for path in patches() + sources():
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    names = fitting() if frameworks is None else frameworks
    bindings = " ".join(f"{framework.key} {framework.version()}" for framework in names)
    digest.update(f"{python} {bindings} {version_of('impi-rt')}".encode())
    return digest.hexdigest()[:24]


def built_for() -> tuple[Framework, ...]:
    """Returns the frameworks that the installed Horovod has bindings for.

    Raises:
        HvdFtError: as of `installed_build`.
    """
    build = installed_build()
    return () if build is None else named(build.frameworks)


def installed_build() -> Build | None:
    """Returns what the installed Horovod was built as; None if no Horovod is installed.

    Raises:
        HvdFtError: its marker file cannot be read.
    """
    try:
        horovod = metadata.distribution("horovod")
    except metadata.PackageNotFoundError:
        return None
    marker = Path(str(horovod.locate_file(MARKER)))
    if not marker.is_file() or horovod.files is None:  # pip lists the files last
        return Build("", ())
    try:
        read = read_json(marker.read_text())
        given = read.get("frameworks", [])  # an older hvd_ft wrote none
        keys = (framework.key for framework in FRAMEWORKS)
        return Build(str(read["key"]), tuple(key for key in keys if key in given))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HvdFtError(
            f"Horovod's {MARKER} cannot be read ({error}); run 'hvdft build-horovod'"
        ) from None
