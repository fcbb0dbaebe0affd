"""Where the patches are. Imports nothing that an environment could lack, unlike `patching.py`."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def patches(release: str) -> list[Path]:
    """Returns the patches to a release such as `horovod-0.28.1`, in the order in which they apply.

    They lie at the top of a checkout, or inside the installed package.
    """
    installed, checkout = _PACKAGE / "patches", _PACKAGE.parent / "patches"
    folder = installed if installed.is_dir() else checkout
    return sorted((folder / release).glob("*.patch"))
