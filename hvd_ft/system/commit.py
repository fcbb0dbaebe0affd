"""The commit that this hvd_ft was made of, which a version between two releases does not tell."""

from __future__ import annotations

import functools
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_DIGITS = 12


@functools.cache
def commit() -> str:
    """Returns the commit; "" if it is not known.

    A wheel has it in the file COMMIT, which setup.py writes; a checkout has it in .git.
    """
    try:
        return (_PACKAGE / "COMMIT").read_text().strip()[:_DIGITS]
    except OSError:
        return of_checkout(_PACKAGE.parent)


def of_checkout(folder: Path) -> str:
    """Returns the commit of a checkout, without running git; "" if it is none.

    Args:
        folder: of the checkout, or of another work tree of the same repository.
    """
    git = folder / ".git"
    try:
        if git.is_file():
            git = folder / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head[:_DIGITS]
        shared = git / "commondir"
        common = git / shared.read_text().strip() if shared.exists() else git
        return _of_reference(common, head.removeprefix("ref:").strip())
    except OSError:
        return ""


def _of_reference(git: Path, name: str) -> str:
    if (git / name).exists():
        return (git / name).read_text().strip()[:_DIGITS]
    lines = (git / "packed-refs").read_text().splitlines()
    return next((line[:_DIGITS] for line in lines if line.endswith(f" {name}")), "")


def version_text(version: str) -> str:
    """Returns a version with the commit, if it is known."""
    return f"{version} (commit {commit()})" if commit() else version
