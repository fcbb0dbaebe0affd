"""The flags of horovodrun that `hvdft run` has so that command lines work as they are.

docs/from-horovod.md has all of them in a table, which a test compares with horovodrun's own parser.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

from hvd_ft.errors import HvdFtError
from hvd_ft.installed.build_summary import build_summary
from hvd_ft.mpi.variables import through_ssh
from hvd_ft.system.command_line import Parser, duration, whole
from hvd_ft.system.say import answer

LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
_MEBIBYTE = 1 << 20

_USE_MPI = "hvd_ft always uses MPI between hosts, and shared memory on one"
# In place of flags that are not here; those of one line share an answer.
_ANSWERS = {
    "--gloo": f"{_USE_MPI}; leave it out",
    "--jsrun": "hvdft run starts the ranks itself, in an LSF allocation too; leave it out",
    "--thread-affinity": "use --bind-to, which binds all threads of a rank",
    "--reset-limit": "set HOROVOD_FT_MAX_FAILURES",
}
REFUSED = {flag: answer for flags, answer in _ANSWERS.items() for flag in flags.split()}

_NO_CYCLES = "the ft backend sends a tensor when all ranks have announced it, without cycles"
_NO_CACHE = "the ft backend keeps no such cache"
_RING = "the ft backend sums on each host first, then between hosts; see --topology"
# Flags that are taken and mean nothing here, by the reason; `N` if they have a value.
_WITHOUT_EFFECT = {
    "--cycle-time-ms N": _NO_CYCLES,
    "--cache-capacity N": _NO_CACHE,
    "--disable-cache": "hvdft run checks the hosts every time",
    "--hierarchical-allreduce --no-hierarchical-allreduce": _RING,
    "--hierarchical-allgather --no-hierarchical-allgather": _RING,
    "--torus-allreduce --no-torus-allreduce": _RING,
    "--num-nccl-streams N": "the ft backend does not use NCCL",
    "--gloo-timeout-seconds N": "the ft backend does not use Gloo",
    "--binding-args N": "horovodrun ignores it with Intel MPI; see --bind-to",
    "--mpi-threads-disable --no-mpi-threads-disable": "workers do not use MPI",
}
# Flags that set a variable of Horovod to a fixed value.
_SWITCHES = {
    "--timeline-mark-cycles": ("HOROVOD_TIMELINE_MARK_CYCLES", "1"),
    "--no-timeline-mark-cycles": ("HOROVOD_TIMELINE_MARK_CYCLES", "0"),
    "--no-stall-check": ("HOROVOD_STALL_CHECK_DISABLE", "1"),
    "--stall-check": ("HOROVOD_STALL_CHECK_DISABLE", "0"),
    "--log-with-timestamp --no-log-hide-timestamp": ("HOROVOD_LOG_HIDE_TIME", "0"),
    "--log-without-timestamp --log-hide-timestamp": ("HOROVOD_LOG_HIDE_TIME", "1"),
    "--tcp": ("FI_PROVIDER", "tcp"),
}


class _ShowBuild(argparse.Action):
    """Prints what Horovod is built with, and ends the process."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        answer(build_summary())
        parser.exit()


class _Note(argparse.Action):
    """Notes a flag that means nothing here, with the reason."""

    def __init__(self, option_strings: Sequence[str], dest: str, reason: str, **how: Any) -> None:
        super().__init__(option_strings, "without_effect", default=(), **how)
        self._reason = reason

    def __call__(
        self, parser: Any, options: argparse.Namespace, values: Any, flag: str | None = None
    ) -> None:
        options.without_effect = (*options.without_effect, f"{flag} has no effect: {self._reason}")


class _Set(argparse.Action):
    """Sets an environment variable of the job."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, variable: str, value: str, **how: Any
    ) -> None:
        super().__init__(option_strings, "variables", nargs=0, default=(), **how)
        self._variable, self._value = variable, value

    def __call__(self, parser: Any, options: argparse.Namespace, *_: Any) -> None:
        options.variables = (*options.variables, (self._variable, self._value))


def add_horovodrun(run: Parser) -> None:
    """Adds the flags; most of them are for experts.

    Args:
        run: the parser that gets them.
    """
    group = run.add_argument_group("as in horovodrun (docs/from-horovod.md#flags-of-horovodrun)")
    group.add_argument(
        "--check-build",
        "-cb",
        action=_ShowBuild,
        nargs=0,
        help="show the frameworks and operations that are built in, and exit",
    )
    group.add_argument(
        "--start-timeout",
        type=duration,
        metavar="SECONDS",
        help="all ranks must have started by then (default: 120)",
    )
    group.add_argument(
        "--ssh-port",
        "-p",
        type=whole(of="ports"),
        metavar="PORT",
        help="where ssh connects on the other hosts",
    )
    group.add_argument("--ssh-identity-file", "-i", metavar="FILE", help="private key for ssh")
    group.add_argument(
        "--timeline-filename", metavar="FILE", help="write Horovod's timeline, as JSON"
    )
    group.add_argument(
        "--fusion-threshold-mb",
        type=whole(0, "MiB"),
        metavar="N",
        help="fuse small tensors up to N MiB (default: 128; 0: do not)",
    )
    group.add_argument("--log-level", choices=LOG_LEVELS, help="of Horovod's own lines")
    run.expert(
        group.add_argument(
            "--mpi-args",
            metavar="ARGS",
            help="further flags of Intel MPI's mpirun, as in --mpi-args='-genv I_MPI_DEBUG 4'",
        ),
        group.add_argument("--mpi", action="store_true", help="use MPI, as hvd_ft always does"),
        group.add_argument(
            "--stall-check-warning-time-seconds",
            type=whole(0),
            metavar="N",
            help="Horovod warns of stalled tensors (default: 60)",
        ),
        group.add_argument(
            "--stall-check-shutdown-time-seconds",
            type=whole(0),
            metavar="N",
            help="Horovod ends the job if they stay so (default: 0, never)",
        ),
    )
    for flags, (variable, value) in _SWITCHES.items():
        how: dict[str, Any] = {
            "variable": variable,
            "value": value,
            "help": f"set {variable} to {value}",
        }
        run.expert(group.add_argument(*flags.split(), action=_Set, **how))
    for flags, reason in _WITHOUT_EFFECT.items():
        names = [word for word in flags.split() if word != "N"]
        has_value = "N" in flags.split()
        how = {"nargs": None, "metavar": "VALUE"} if has_value else {"nargs": 0}
        text = f"taken, without effect: {reason}"
        run.expert(group.add_argument(*names, action=_Note, reason=reason, help=text, **how))


def horovodrun_environment(options: argparse.Namespace) -> dict[str, str]:
    """Returns what the flags set, by environment variable.

    Args:
        options: of the command line.
    """
    fusion = options.fusion_threshold_mb
    given = {
        "HOROVOD_FT_START_TIMEOUT_SECONDS": options.start_timeout,
        "HOROVOD_TIMELINE": options.timeline_filename,
        "HOROVOD_FUSION_THRESHOLD": None if fusion is None else fusion * _MEBIBYTE,
        "HOROVOD_LOG_LEVEL": options.log_level,
        "HOROVOD_STALL_CHECK_TIME_SECONDS": options.stall_check_warning_time_seconds,
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": options.stall_check_shutdown_time_seconds,
        **dict(options.variables),
        **through_ssh(options.ssh_port, options.ssh_identity_file),
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def mpi_arguments(options: argparse.Namespace) -> tuple[str, ...]:
    """Returns the words of --mpi-args.

    Raises:
        HvdFtError: a quotation in it does not end.
    """
    try:
        return tuple(shlex.split(options.mpi_args or ""))
    except ValueError as error:
        raise HvdFtError(
            f"--mpi-args {options.mpi_args} cannot be divided into words ({error}); give what "
            "it lacks"
        ) from None
