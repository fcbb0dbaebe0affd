"""Prints the licence of hvd_ft and of everything that it needs in this environment, as CSV.

It uses only what hvd_ft itself needs, so that it runs in a fresh environment.
"""

import csv
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata

from packaging.requirements import Requirement

ROOT_PACKAGE = "hvd_ft"
FRAMEWORKS = ("tensorflow", "torch")  # extras; each is looked for


def normal(name: str) -> str:
    """Returns a package's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(name: str, extras: Iterable[str]) -> Iterator[metadata.Distribution]:
    """Yields a package and all installed ones that it needs, directly or not, each once.

    Args:
        name: of the package.
        extras: of it.
    """
    wanted = [(name, tuple(extras))]
    seen: set[str] = set()
    while wanted:
        next_name, of_extras = wanted.pop()
        key = normal(next_name)
        if key in seen:
            continue
        try:
            found = metadata.distribution(key)
        except metadata.PackageNotFoundError:
            continue  # needed by a framework that is not installed
        seen.add(key)
        yield found
        for need in map(Requirement, found.requires or ()):
            marker = need.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in ("", *of_extras)):
                wanted.append((need.name, tuple(need.extras)))


def licence(package: metadata.Distribution) -> str:
    """Returns a package's licence: its expression, else its classifiers, else its first line."""
    about = package.metadata
    if "License-Expression" in about:
        return about["License-Expression"]
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    text = about["License"].strip() if "License" in about else ""
    return "; ".join(classifiers) or (text.splitlines() or ["see the package"])[0]


def main() -> None:
    """Prints the table."""
    out = csv.writer(sys.stdout)
    out.writerow(["package", "version", "licence"])
    found = sorted(
        closure(ROOT_PACKAGE, FRAMEWORKS), key=lambda each: normal(each.metadata["Name"])
    )
    for package in found:
        out.writerow([package.metadata["Name"], package.version, licence(package)])


if __name__ == "__main__":
    main()
