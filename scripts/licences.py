"""Prints the licence of hvd_ft and of everything that it needs in this environment, as CSV.

It uses Python's standard library alone, so that it runs in a fresh environment.
"""

import csv
import re
import sys
from collections.abc import Iterator
from importlib import metadata

ROOT_PACKAGE = "hvd_ft"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def normal(name: str) -> str:
    """Returns a package's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(name: str) -> Iterator[metadata.Distribution]:
    """Yields a package and all installed ones that it needs, directly or not, each once."""
    wanted, seen = [name], set()
    while wanted:
        key = normal(wanted.pop())
        if key in seen:
            continue
        seen.add(key)
        try:
            found = metadata.distribution(key)
        except metadata.PackageNotFoundError:
            continue  # needed on other platforms, or by an extra that is not installed
        yield found
        wanted += [match[0] for need in found.requires or () if (match := _NAME.match(need))]


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
    found = sorted(closure(ROOT_PACKAGE), key=lambda each: normal(each.metadata["Name"]))
    for package in found:
        out.writerow([package.metadata["Name"], package.version, licence(package)])


if __name__ == "__main__":
    main()
