"""Versions of what is installed in this Python environment."""

from importlib import metadata


def version_of(distribution: str) -> str | None:
    """Returns the version of an installed distribution, None when it is absent."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
