"""Looks for inputs that a reader takes badly, led by what the code does with them (atheris).

The targets are those of tests/damage/targets.py; `make test` tries each with the same damage every
time, this with other damage for as long as it is given. What it finds lies in out/fuzz/TARGET/ and
is tried again by `scripts/fuzz.py --only TARGET --replay FILE`; a finding becomes a seed there.

hvd_ft is imported, and instrumented, once: each target has a child of that process. The target
"core" is a program in C++, tests/core/damaged_input_test.cc, with another seed each time.
"""

import argparse
import contextlib
import io
import os
import secrets
import shlex
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from damage.targets import Target

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "fuzz"
sys.path.insert(0, str(ROOT / "tests"))
_CORE = "core"
_INPUT_SECONDS = 600  # for one input: it hangs, on however busy a machine
_MOST_BYTES = 1 << 16


def main() -> int:
    """Fuzzes all targets, one after the other; returns 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--only", default="", metavar="TARGET", help="this one alone")
    parser.add_argument("--replay", metavar="FILE", help="reads this, by the target of --only")
    options = parser.parse_args()
    # atheris ends its process without a clean-up; what all of them make is in here.
    with tempfile.TemporaryDirectory(prefix="hvdft-fuzz-", dir="/dev/shm") as folder:
        os.environ["TMPDIR"] = folder
        return _run(parser, options)


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    import atheris

    quiet = contextlib.redirect_stderr(io.StringIO())  # it says a line for each module
    with quiet, atheris.instrument_imports(include=["hvd_ft"]):
        from damage.targets import targets
    there = targets()
    names = [*there, _CORE]
    if options.only and options.only not in names:
        parser.error(f"--only {options.only}: there are {', '.join(names)}")
    if options.replay:
        there[options.only].try_one(Path(options.replay).read_bytes())
        return 0
    if options.only:
        names = [options.only]
    seconds = max(1, int(options.minutes * 60 / len(names)))
    bad = [name for name in names if not _is_sound(name, there.get(name), seconds)]
    print(f"{len(names)} readers, {seconds} s each; found something in: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


def _is_sound(name: str, target: "Target | None", seconds: int) -> bool:
    """Fuzzes a target; None: the core."""
    folder = _folder(name)
    log = folder / "log"
    if target is None:
        code = _fuzz_core(seconds, log)
    elif (child := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            _fuzz(folder, target, seconds, log)
        os._exit(1)
    else:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        lines = log.read_text(errors="replace").splitlines()
        print(f"{name}: exit code {code}; see {log}", *lines[-12:], sep="\n  ", flush=True)
    return code == 0


def _fuzz_core(seconds: int, log: Path) -> int:
    from core.build_programs import build_programs

    seed = secrets.randbelow(1 << 32)
    program = build_programs("damaged_input_test") / "damaged_input_test"
    command = [str(program), str(seconds), str(seed)]
    with log.open("wb") as output:
        output.write(f"{shlex.join(command)}\n".encode())
        output.flush()
        environ = {**os.environ, "HVDFT_TEST_DIR": os.environ["TMPDIR"]}
        return subprocess.run(command, check=False, stderr=output, env=environ).returncode


def _folder(name: str) -> Path:
    folder = OUT / name.replace(" ", "-").replace("'", "")
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    return folder


def _fuzz(folder: Path, target: "Target", seconds: int, log: Path) -> None:
    """Fuzzes in this process, which ends with it."""
    import atheris

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    for number, seed in enumerate(target.seeds):
        (folder / "corpus" / f"seed-{number}").write_bytes(seed)
    arguments = {
        "max_total_time": seconds,
        "max_len": _MOST_BYTES,
        "timeout": _INPUT_SECONDS,
        "artifact_prefix": f"{folder}/",
    }
    flags = [f"-{flag}={value}" for flag, value in arguments.items()]
    try:
        atheris.Setup([sys.argv[0], *flags, str(folder / "corpus")], target.try_one)
        atheris.Fuzz()
    except BaseException:
        traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
