"""Makes a release in dist/: sdist, wheel, licences, checksums, each checked in fresh environments.

    release.py                              # everything; a quarter of an hour
    release.py --environments torch         # only one of the fresh environments
    release.py --key ~/.ssh/id_ed25519      # with signed checksums

Signatures are those of OpenSSH: `ssh-keygen -Y verify` checks them (docs/releases.md).
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hvd_ft import __version__

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SUMS = "SHA256SUMS"
ENVIRONMENTS = {"tensorflow": "tensorflow", "torch": "torch", "both": "tensorflow,torch"}
_LICENCES = Path(__file__).with_name("licences.py")


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> None:
    """Runs a command that has to succeed, after a line that names it."""
    words = [*map(str, command)]
    print("+", *words, flush=True)
    done = subprocess.run(words, check=False, cwd=cwd, env=env, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"release: {words[0]} ended with code {done.returncode}, see above")


def check_tree() -> None:
    """Checks that what is released is a commit, and that the changelog has the version."""
    status = subprocess.run(
        ["git", "status", "--porcelain"], check=True, cwd=ROOT, capture_output=True, text=True
    )
    if status.stdout:
        raise SystemExit("release: there are changes that are not committed; commit them first")
    heading = rf"^## {re.escape(__version__)} \([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}\)$"
    if not re.search(heading, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE):
        raise SystemExit(
            f"release: CHANGELOG.md has no heading '## {__version__} (YYYY-MM-DD)'; write the day"
        )


def build() -> Path:
    """Makes the sdist, and the wheel from it; returns the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", DIST)
    [sdist] = DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", DIST, sdist)
    [wheel] = DIST.glob("*.whl")
    return wheel


def check_environment(name: str, wheel: Path, folder: Path) -> None:
    """Installs the wheel into a fresh environment, builds Horovod there, and runs a job."""
    place = folder / name
    run(sys.executable, "-m", "venv", place)
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    binaries = place / "bin"
    env["PATH"] = f"{binaries}{os.pathsep}{env['PATH']}"
    run(binaries / "pip", "install", "-q", f"{wheel}[{ENVIRONMENTS[name]}]", env=env)
    run(binaries / "hvdft", "build-horovod", env=env, cwd=folder)
    run(binaries / "hvdft", "check", env=env, cwd=folder)
    run(binaries / "hvdft", "--version", env=env, cwd=folder)
    with (DIST / f"licences-{name}.csv").open("w") as file:
        subprocess.run([binaries / "python", _LICENCES], check=True, stdout=file, env=env)


def write_sums(files: Sequence[Path]) -> Path:
    """Writes the checksums of files; returns the file with them."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    sums = DIST / SUMS
    sums.write_text("".join(lines))
    return sums


def main() -> None:
    """Makes the release."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--environments",
        nargs="*",
        choices=list(ENVIRONMENTS),
        default=list(ENVIRONMENTS),
        help="fresh environments in which the wheel is checked",
    )
    parser.add_argument("--key", metavar="FILE", help="SSH key that signs the checksums")
    options = parser.parse_args()
    check_tree()
    wheel = build()
    folder = ROOT / "build" / "release"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in options.environments:
        check_environment(name, wheel, folder)
    sums = write_sums(sorted(path for path in DIST.iterdir()))
    if options.key:
        run("ssh-keygen", "-Y", "sign", "-n", "file", "-f", Path(options.key).expanduser(), sums)
    else:
        print(f"release: {sums} is not signed; give --key")
    print(f"release: hvd_ft {__version__} is in {DIST}")


if __name__ == "__main__":
    main()
