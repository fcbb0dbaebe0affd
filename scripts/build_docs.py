"""Builds the documentation's site into build/site; warnings are errors.

    build_docs.py            # make docs
    build_docs.py --serve    # and shows it on loopback, port 8000

Pages lie where a reader of the checkout looks for them. They, and what they link to, are copied to
build/pages, each to its own place, so that links between them hold.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "pages"
_SUFFIXES = {".md", ".css", ".png", ".svg", ".py", ".csv", ".yaml", ".sbatch", ".json", ""}


def gather() -> None:
    """Copies what belongs to the documentation."""
    shutil.rmtree(PAGES, ignore_errors=True)
    folders = ["docs", "examples", "experiments"]
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = [*listing.stdout.splitlines(), *(path.name for path in ROOT.glob("*.md")), "LICENSE"]
    for name in names:
        source = ROOT / name
        if source.is_file() and source.suffix in _SUFFIXES:
            (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, PAGES / name)


def main() -> None:
    """Builds or shows the site."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--serve", action="store_true", help="show it on loopback, port 8000")
    command = ["serve"] if parser.parse_args().serve else ["build", "--strict"]
    gather()
    # Material prints a notice about MkDocs 2 on every build, which does not concern us.
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command], cwd=ROOT, env=env, check=False
    )
    raise SystemExit(built.returncode)


if __name__ == "__main__":
    main()
