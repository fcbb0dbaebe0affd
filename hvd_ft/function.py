"""A job that calls a function on every rank, started from Python or a notebook.

`run` starts `hvdft run` with this module as the job's program. The function comes to the ranks, and
what it returns or raises comes back, in files of a directory that only the user may enter. They are
signed with a key that the ranks inherit, since the directory may be on a shared file system: nobody
but the caller and its ranks can have such a file unpickled.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

import cloudpickle

from hvd_ft.errors import HvdFtError
from hvd_ft.system.child import begin_child
from hvd_ft.system.command_line import EXIT_BAD_INPUT
from hvd_ft.system.say import PREFIX, log, logs, say
from hvd_ft.system.whole_file import write_whole

_KEY = "HVDFT_FUNCTION_KEY"
_CALL = "call"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class _Outcome:
    """What a rank's function came to.

    Attributes:
        value: what it returned, or the exception that it raised, pickled.
        failed: what was raised, as Python prints it; empty if nothing was.
    """

    value: bytes
    failed: str = ""


def run(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    **flags: Any,
) -> list[Any]:
    """Runs a function on every rank of a job, and waits for the job's end; like `horovod.run`.

    Every rank calls `function(*args, **kwargs)`, a restarted one again, as a script begins again.
    Ctrl-C, or a notebook's interrupt, ends the job as Ctrl-C ends `hvdft run`.

    Args:
        function: what to call. cloudpickle has to be able to pickle it, its arguments and what it
            returns: functions of a notebook or of the script are copied, those of a module are
            imported by the ranks.
        args: its arguments.
        kwargs: its arguments by name.
        env: further environment variables of the job.
        directory: where the function and its results are passed on, in a directory of their own
            that is removed at the end (default: this host's temporary directory). A job on several
            hosts needs one that all of them share.
        flags: flags of `hvdft run`, with underscores: `np=4`, `hosts="n0:4,n1:4"`,
            `checkpoint_dir="ck"`, `verbose=True`; a list gives a flag several times.

    Returns:
        What the function has returned, by rank.

    Raises:
        HvdFtError: the job could not start, or it failed without an exception of the function.
        Exception: what the function has raised on the lowest rank, with a note that says on which
            and its traceback there.
        KeyboardInterrupt: the job was interrupted, and has ended.
    """
    made = tempfile.mkdtemp(prefix="hvdft-function-", dir=directory)
    try:
        return _run(
            _Files(Path(made), secrets.token_bytes(32)), (function, args, kwargs), env, flags
        )
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _run(
    files: _Files,
    call: tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any] | None],
    env: Mapping[str, str] | None,
    flags: Mapping[str, Any],
) -> list[Any]:
    function, args, kwargs = call
    try:
        pickled = cloudpickle.dumps((function, tuple(args), dict(kwargs or {})))
    except Exception as error:
        raise HvdFtError(
            f"the function of hvd_ft.run(), or one of its arguments, cannot be pickled ({error}): "
            "make what it uses inside of it"
        ) from error
    files.write(_CALL, cloudpickle.dumps((sys.path, pickled)))
    program = [sys.executable, "-m", __name__, str(files.directory)]
    command = [sys.executable, "-m", "hvd_ft.cli", "run", *_words(flags), *program]
    code = _job(command, {**os.environ, **(env or {}), _KEY: files.key.hex()})
    outcomes = files.outcomes()
    for rank, outcome in sorted(outcomes.items()):
        if outcome.failed:
            raise _raised(rank, outcome)
    if code != 0:
        raise HvdFtError(
            f"the job of hvd_ft.run() ended with code {code}: see the lines of hvdft run above"
        )
    return [cloudpickle.loads(outcome.value) for _, outcome in sorted(outcomes.items())]


def _words(flags: Mapping[str, Any]) -> Iterator[str]:
    """Returns flags as words of a command line."""
    for name, value in flags.items():
        flag = "--num-proc" if name == "np" else f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is not None and each is not False:
                yield flag if each is True else f"{flag}={each}"


def _job(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs a job to its end, which Ctrl-C asks for; returns its exit code."""
    # A notebook's streams are objects, not this process's descriptors; and lines may be logged.
    streams = [sys.stdout, sys.stderr]
    inherits = [*streams, False] == [sys.__stdout__, sys.__stderr__, logs()]
    job = subprocess.Popen(
        command,
        env=env,
        process_group=0,  # Ctrl-C reaches it once: from here
        preexec_fn=begin_child,  # noqa: PLW1509  (other threads hold nothing that it needs)
        stdin=subprocess.DEVNULL,
        stdout=None if inherits else subprocess.PIPE,
        stderr=None if inherits else subprocess.PIPE,
        text=True,
        errors="replace",
    )
    threads = [
        threading.Thread(target=_forward, args=pair, daemon=True)
        for pair in zip([job.stdout, job.stderr], streams, strict=True)
        if pair[0] is not None
    ]
    for thread in threads:
        thread.start()
    interrupted = False
    while True:
        try:
            code = job.wait()
            for thread in threads:
                thread.join()
            break
        except KeyboardInterrupt:
            interrupted = True
            job.send_signal(signal.SIGINT)
    if interrupted:
        raise KeyboardInterrupt
    return code


def _forward(pipe: IO[str], stream: TextIO) -> None:
    for line in pipe:
        own = line.removeprefix(PREFIX)
        if own == line or not log(own.rstrip("\n")):
            stream.write(line)
            stream.flush()


def _raised(rank: int, outcome: _Outcome) -> BaseException:
    """Returns the exception of a rank; one of ours if it cannot be made here."""
    error: BaseException | None = None
    with contextlib.suppress(Exception):  # whatever making it raises
        error = cloudpickle.loads(outcome.value)
    if not isinstance(error, BaseException):
        last = outcome.failed.strip().splitlines()[-1]
        error = HvdFtError(f"the function of hvd_ft.run() raised on rank {rank}: {last}")
    error.add_note(f"on rank {rank}:\n{outcome.failed}")
    return error


@dataclass(frozen=True)
class _Files:
    """The files of a call: the function, and each rank's outcome.

    Attributes:
        directory: theirs alone.
        key: signs them.
    """

    directory: Path
    key: bytes

    def write(self, name: str, data: bytes) -> None:
        write_whole(str(self.directory / name), self._digest(name, data) + data)

    def read(self, name: str) -> bytes:
        """Returns a file's data; an HvdFtError says why they cannot be had."""
        path = self.directory / name
        try:
            signed = path.read_bytes()
        except OSError as error:
            raise HvdFtError(
                f"{path} cannot be read on this host ({error.strerror}): give hvd_ft.run() a "
                "directory= that all hosts share"
            ) from error
        digest, data = signed[:_DIGEST_BYTES], signed[_DIGEST_BYTES:]
        if not hmac.compare_digest(digest, self._digest(name, data)):
            raise HvdFtError(f"{path} is not as hvd_ft.run() wrote it: start the job again")
        return data

    def _digest(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self.key, name.encode() + b"\0" + data, "sha256")

    def write_outcome(self, rank: str, outcome: _Outcome) -> None:
        self.write(f"rank-{rank}", cloudpickle.dumps((outcome.value, outcome.failed)))

    def outcomes(self) -> dict[int, _Outcome]:
        """Returns the outcomes that there are, by rank."""
        found = {}
        for path in self.directory.glob("rank-*"):
            rank = path.name.removeprefix("rank-")
            if rank.isdecimal():  # and not a draft that was never finished
                found[int(rank)] = _Outcome(*cloudpickle.loads(self.read(path.name)))
        return found


def _call() -> None:
    """A rank's program: calls the function, and writes what comes of it."""
    directory, rank = Path(sys.argv[1]), os.environ["HOROVOD_RANK"]
    files = _Files(directory, bytes.fromhex(os.environ[_KEY]))
    try:
        path, pickled = cloudpickle.loads(files.read(_CALL))
    except HvdFtError as error:
        say(error)
        raise SystemExit(EXIT_BAD_INPUT) from error
    sys.path += [entry for entry in path if entry not in sys.path]
    try:
        function, args, kwargs = cloudpickle.loads(pickled)
        outcome = _Outcome(cloudpickle.dumps(function(*args, **kwargs)))
    except Exception as error:
        value = b""
        with contextlib.suppress(Exception):
            value = cloudpickle.dumps(error)
        files.write_outcome(rank, _Outcome(value, traceback.format_exc()))
        raise
    files.write_outcome(rank, outcome)


if __name__ == "__main__":
    _call()
