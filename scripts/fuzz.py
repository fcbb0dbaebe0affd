"""Looks for inputs that a reader takes badly, led by what the code does with them (atheris).

The targets are those of tests/damage/targets.py; `make test` tries each with the same damage every
time, this with other damage for as long as it is given. What it finds lies in out/fuzz/TARGET/ and
is tried again by `scripts/fuzz.py --only TARGET --replay FILE`; a finding becomes a seed there.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "fuzz"
sys.path.insert(0, str(ROOT / "tests"))
_INPUT_SECONDS = 600  # for one input: it hangs, on however busy a machine
_MOST_BYTES = 1 << 16


def main() -> int:
    """Fuzzes all targets, one after the other; returns 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--only", default="", metavar="TARGET", help="this one alone")
    parser.add_argument("--replay", metavar="FILE", help="reads this, by the target of --only")
    parser.add_argument("--seconds", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.seconds:
        _fuzz(options.only, options.seconds)  # does not return
    # atheris ends its process without a clean-up; what all of them make is in here.
    with tempfile.TemporaryDirectory(prefix="hvdft-fuzz-", dir="/dev/shm") as folder:
        os.environ["TMPDIR"] = folder
        return _run(parser, options)


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from damage.targets import targets

    there = targets()
    if options.only and options.only not in there:
        parser.error(f"--only {options.only}: there are {', '.join(there)}")
    if options.replay:
        there[options.only].try_one(Path(options.replay).read_bytes())
        return 0
    names = [options.only] if options.only else list(there)
    seconds = max(1, int(options.minutes * 60 / len(names)))
    bad = [name for name in names if not _is_sound(name, seconds)]
    print(f"{len(names)} readers, {seconds} s each; found something in: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


def _is_sound(name: str, seconds: int) -> bool:
    command = [sys.executable, __file__, "--only", name, "--seconds", str(seconds)]
    log = _folder(name) / "log"
    with log.open("wb") as file:
        code = subprocess.run(command, check=False, stdout=file, stderr=file).returncode
    if code:
        lines = log.read_text(errors="replace").splitlines()
        print(f"{name}: exit code {code}; see {log}", *lines[-12:], sep="\n  ", flush=True)
    return code == 0


def _folder(name: str) -> Path:
    folder = OUT / name.replace(" ", "-").replace("'", "")
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    return folder


def _fuzz(name: str, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["hvd_ft"]):
        from damage.targets import targets
    target, folder = targets()[name], _folder(name)
    for number, seed in enumerate(target.seeds):
        (folder / "corpus" / f"seed-{number}").write_bytes(seed)
    arguments = {
        "max_total_time": seconds,
        "max_len": _MOST_BYTES,
        "timeout": _INPUT_SECONDS,
        "artifact_prefix": f"{folder}/",
    }
    flags = [f"-{flag}={value}" for flag, value in arguments.items()]
    atheris.Setup([sys.argv[0], *flags, str(folder / "corpus")], target.try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
