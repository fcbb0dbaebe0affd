"""Where the patches are. Needs nothing that an environment could lack, as `patching.py` does."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def patches(release: str) -> list[Path]:
    """Returns the patches to a release such as `horovod-0.28.1`, in the order in which they apply.

    They stand at the top of a checkout and inside the package once that is installed.
    """
    installed, checkout = _PACKAGE / "patches", _PACKAGE.parent / "patches"
    folder = installed if installed.is_dir() else checkout
    return sorted((folder / release).glob("*.patch"))
