"""The command line `hvdft`: its commands, and one line for each error."""

from __future__ import annotations

import hvd_ft.system.quiet_start  # noqa: F401

# isort: split

import argparse
import signal
import socket
import sys
from collections.abc import Sequence
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from hvd_ft import __version__
from hvd_ft.checkpoint.command import add_checkpoint
from hvd_ft.errors import HvdFtError
from hvd_ft.job.agent_flags import add_agent_flags
from hvd_ft.launcher.command import add_run
from hvd_ft.members.hosts import parse_hosts
from hvd_ft.reports.command import add_report, show_report
from hvd_ft.status.command import add_status
from hvd_ft.system.command_line import EXIT_BAD_INPUT, Parser
from hvd_ft.system.commit import version_text
from hvd_ft.system.say import answer, say
from hvd_ft.system.writable import EXIT_NOT_WRITTEN, NotWrittenError
from hvd_ft.tools.bench.command import add_bench
from hvd_ft.tools.check.command import add_check
from hvd_ft.tools.cluster.command import add_cluster
from hvd_ft.tools.tune.probe_command import add_probe
from hvd_ft.tools.tune.tune_command import add_tune

EXIT_INTERRUPTED = 130
_ROOT_FLAGS = ("-h", "--help", "--version")
_FIRST = "hvdft run -np 4 python train.py"


_Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: The arguments without the program's name; None: those of this process.

    Returns:
        The exit code: 2 for bad input, 74 if everything succeeded but a result could not be
        written; otherwise 0, or for `run` the exit code of the workers.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["agent"]:  # has flags of its own
            from hvd_ft.agent import main as agent

            return agent.main(given[1:])
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        root = parser()
        if not given:
            root.print_help()
            return 0
        if given and given[0].startswith("-") and given[0] not in _ROOT_FLAGS:
            root.error(f"{given[0]} stands before the command; give that first, as in {_FIRST}")
        options = root.parse_args(given)
        code: int = options.handler(options)
        return code
    except HvdFtError as error:
        say(error)
        return EXIT_NOT_WRITTEN if isinstance(error, NotWrittenError) else EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def parser() -> Parser:
    """Returns the parser of the whole command line."""
    root = Parser(
        prog="hvdft",
        description="Horovod training that continues when a rank dies.",
        epilog=f"Start here: {_FIRST}",
        allow_abbrev=False,
    )
    root.add_argument("--version", action="version", version=f"hvdft {version_text(__version__)}")
    commands = root.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=Parser
    )
    add_run(commands, _add)
    purpose = "run one rank's agent and its worker; for use under horovodrun or mpirun"
    agent = _add(commands, "agent", purpose, "horovodrun -np 4 hvdft agent python train.py")
    add_agent_flags(agent)  # main() has it parse them itself
    purpose = "build Horovod with the ft backend into the active environment"
    build = _add(commands, "build-horovod", purpose, "hvdft build-horovod")
    build.add_argument(
        "--force", action="store_true", help="build even if the right build is installed"
    )
    build.set_defaults(handler=_build_horovod)
    add_check(commands, _add)
    patch = _add(
        commands,
        "patch",
        "patch the installed tensorflow_estimator, so that without a model_dir it writes nothing",
        "hvdft patch apply",
    )
    patch.add_argument("action", choices=("apply", "status", "revert"), help="what to do")
    patch.set_defaults(handler=_patch)
    add_status(commands, _add)
    add_report(commands, _add)
    commands.choices["report"].set_defaults(handler=_report)
    _add_log(commands)
    _add_clean(commands)
    _add_completion(commands)
    add_bench(commands, _add)
    add_checkpoint(commands, _add)
    add_cluster(commands, _add)
    add_probe(commands, _add)
    add_tune(commands, _add)
    return root


def _add(
    commands: _Commands,
    name: str,
    text: str,
    example: str,
) -> Parser:
    return commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"Example: {example}",
        allow_abbrev=False,
    )


def _add_log(commands: _Commands) -> None:
    log = _add(commands, "log", "inspect the logs of a job", "hvdft log show")
    kinds = log.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=Parser
    )
    text = "show the progress of the op log, the ring's edges and the messages between ranks"
    show = _add(kinds, "show", text, "hvdft log show")
    show.add_argument(
        "job",
        nargs="?",
        metavar="JOB",
        help="a running job's id, or its directory (default: the only one on this node)",
    )
    show.set_defaults(handler=_show_log)


def _add_clean(commands: _Commands) -> None:
    purpose = "remove the files of dead jobs; of those that could be resumed if you say so"
    clean = _add(commands, "clean", purpose, "hvdft clean -H n0,n1")
    clean.add_argument("job", nargs="?", metavar="JOB", help="only this one (default: all)")
    clean.add_argument("-H", "--hosts", metavar="HOST,...", help="where (default: this host)")
    clean.add_argument("--dry-run", action="store_true", help="only show what would be removed")
    clean.add_argument(
        "--yes",
        action="store_true",
        help="remove jobs that could be resumed too, without asking (default: ask on a terminal, "
        "elsewhere leave them)",
    )
    clean.set_defaults(handler=_clean)


def _add_completion(commands: _Commands) -> None:
    purpose = "print what makes a shell complete hvdft's commands and flags"
    completion = _add(commands, "completion", purpose, 'eval "$(hvdft completion bash)"')
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="for which shell")
    completion.set_defaults(handler=_completion)


def _completion(options: argparse.Namespace) -> int:
    import shtab

    answer(shtab.complete(parser(), options.shell))
    return 0


def _build_horovod(options: argparse.Namespace) -> int:
    from hvd_ft.tools.install import horovod_build

    horovod_build.build(force=options.force)
    return 0


def _patch(options: argparse.Namespace) -> int:
    from hvd_ft.tools.install import patching

    package = patching.InstalledPackage()
    if options.action == "status":
        changed = ""
    else:
        count = package.apply() if options.action == "apply" else package.revert()
        changed = f" ({count} files changed)" if count else " (nothing to do)"
    answer(f"{patching.PACKAGE} {patching.VERSION}: {package.state.value}{changed}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from hvd_ft.status import flight_text

    if not flight_text.is_flight_record(options.events):
        return show_report(options)
    console = Console()
    for piece in flight_text.pieces(flight_text.read_record(options.events)):
        console.print(piece, soft_wrap=isinstance(piece, Text))
    return 0


def _clean(options: argparse.Namespace) -> int:
    from hvd_ft.launcher import clean

    request = clean.Request(options.job, options.yes, options.dry_run)
    if options.hosts is not None:
        return clean.clean_hosts(request, parse_hosts(options.hosts, 0), _consents)
    answer(f"{socket.gethostname()}: {clean.clean(request, _consents)}")
    return 0


def _consents(question: str) -> bool:
    """Asks the user if there is a terminal; otherwise the answer is no."""
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show_log(options: argparse.Namespace) -> int:
    from hvd_ft.reports import log_show

    log_show.show(options.job, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
