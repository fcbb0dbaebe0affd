"""The command line of `hvdft bench`."""

import argparse
import contextlib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from hvd_ft.errors import HvdFtError
from hvd_ft.system.byte_size import parse_bytes
from hvd_ft.system.command_line import AddCommand, whole
from hvd_ft.system.published import published
from hvd_ft.system.writable import check_writable
from hvd_ft.tools.bench.series import BACKENDS, COPIES, DTYPES, OPS, Row, sizes

MODELS = {"digits": 500, "cnn": 30, "dense": 10, "dense100": 5}  # and the steps of a round
_DEFAULT_MODELS = ("digits", "cnn")
_WIDTH = 100

_Plan = TypeVar("_Plan")


def add_bench(commands: Any, add: AddCommand) -> None:
    """Adds `bench` and its two commands to the command line.

    Args:
        commands: The parsers to which this one is added.
        add: Makes a command's parser from its place, name, help and example.
    """
    bench = add(
        commands,
        "bench",
        "measure the ft backend against stock Horovod on this machine",
        "hvdft bench allreduce -np 4 --backends ft,mpi",
    )
    kinds = bench.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=type(bench)
    )
    _add_allreduce(kinds, add)
    _add_training(kinds, add)


def _add_allreduce(kinds: Any, add: AddCommand) -> None:
    what = "measure hvd.allreduce of each backend, size by size, the backends taking turns"
    flags = "-np 4 --backends ft,mpi --min-bytes 1M --tensors 64 --csv out.csv"
    parser = add(kinds, "allreduce", what, f"hvdft bench allreduce {flags}")
    _add_common(parser)
    parser.add_argument("--min-bytes", type=_bytes, metavar="N", help="first size, of all tensors "
                        "together (default: one element of each tensor)")  # fmt: skip
    parser.add_argument("--max-bytes", type=_bytes, default=64 << 20, metavar="N",
                        help="largest size (default: 64M)")  # fmt: skip
    parser.add_argument("--factor", type=whole(2), default=4, metavar="N",
                        help="ratio of each size to the one before (default: 4)")  # fmt: skip
    parser.add_argument(
        "--dtype", choices=DTYPES, default="float32", help="type of the elements (default: float32)"
    )
    parser.add_argument(
        "--op", choices=OPS, default="sum", help="what the allreduce does with them (default: sum)"
    )
    parser.add_argument("--tensors", type=whole(), default=1, metavar="N",
                        help="split the bytes into N tensors, submitted together (default: 1)",
                        )  # fmt: skip
    parser.add_argument("--no-fusion", dest="fusion", action="store_false",
                        help="prevent Horovod from fusing them (HOROVOD_FUSION_THRESHOLD=0)",
                        )  # fmt: skip
    parser.add_argument("--copies", action="store_true",
                        help="also time the ranks' copies alone: no backend can be faster than "
                        "reading its inputs and writing its outputs")  # fmt: skip
    parser.add_argument("--iterations", type=whole(), default=6, metavar="N",
                        help="timed iterations in a round (default: 6)")  # fmt: skip
    parser.add_argument("--warmup", type=whole(), default=3, metavar="N",
                        help="untimed iterations before them (default: 3)")  # fmt: skip
    parser.add_argument("--repeats", type=whole(), default=12, metavar="N",
                        help="rounds of each backend at each size (default: 12)")  # fmt: skip
    parser.set_defaults(handler=_allreduce)


def _add_training(kinds: Any, add: AddCommand) -> None:
    what = "measure images per second of each backend, and what one killed rank costs"
    flags = "-np 4 --models digits,cnn --csv out.csv --png out.png"
    parser = add(kinds, "training", what, f"hvdft bench training {flags}")
    _add_common(parser)
    parser.add_argument("--models", type=_models, metavar="LIST",
                        default={name: MODELS[name] for name in _DEFAULT_MODELS},
                        help="of digits (the demo's), cnn (24 M parameters), dense (25 M, with "
                        "Adam) and dense100 (100 M), each with its steps a round if you like "
                        "(default: digits:500,cnn:30)",
                        )  # fmt: skip
    parser.add_argument("--rounds", type=whole(), default=3, metavar="N",
                        help="of each backend and kind of run (default: 3)")  # fmt: skip
    parser.add_argument("--snapshot-steps", type=whole(), default=10, metavar="N",
                        help="steps between snapshots where one rank is killed and memory "
                        "measured (default: 10); elsewhere they are chosen")  # fmt: skip
    parser.set_defaults(handler=_training)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-np", "--num-proc", dest="ranks", type=whole(2), default=4,
                        metavar="N", help="number of ranks (default: 4)")  # fmt: skip
    parser.add_argument("--framework", choices=list(BACKENDS),
                        help="that the workers use (default: tensorflow, or what is installed)",
                        )  # fmt: skip
    parser.add_argument("--backends", type=_backends, metavar="LIST",
                        help="comma-separated, of ft, mpi and, with PyTorch, its own gloo "
                        "(default: all)")  # fmt: skip
    parser.add_argument("--round-limit-seconds", "--turn-limit-seconds",
                        type=whole(), default=300, metavar="N",
                        help="a round that takes longer ends the run (default: 300)")  # fmt: skip
    parser.add_argument("--csv", metavar="FILE", help="write the results, one a line")
    parser.add_argument("--png", metavar="FILE", help="draw the results")


def _bytes(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _backends(text: str) -> list[str]:
    names = text.split(",")
    known = list(dict.fromkeys(name for own in BACKENDS.values() for name in own))
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(
                f"{name!r} is not a backend; give some of {','.join(known)}"
            )
    return list(dict.fromkeys(names))


def _choose_framework(options: argparse.Namespace) -> None:
    """Completes the framework and the backends; raises HvdFtError if they do not fit."""
    from hvd_ft.installed.horovod_source import built_for

    there = [framework.key for framework in built_for()]
    options.framework = options.framework or next(iter(there), "tensorflow")
    if options.framework not in there:
        raise HvdFtError(
            f"Horovod was not built for {options.framework}; install it and run "
            "'hvdft build-horovod'"
        )
    own = BACKENDS[options.framework]
    options.backends = options.backends or list(own)
    if not set(options.backends) <= set(own):
        raise HvdFtError(
            "gloo was not found: 'hvdft build-horovod' builds Horovod without Gloo, so it is "
            "measured with --framework torch only; leave it out, as in --backends ft,mpi"
        )


def _models(text: str) -> dict[str, int]:
    found = {}
    known = ",".join(MODELS)
    for entry in text.split(","):
        name, colon, steps = entry.partition(":")
        if name not in MODELS:
            raise argparse.ArgumentTypeError(f"{name!r} is not a model; give some of {known}")
        found[name] = whole(2)(steps) if colon else MODELS[name]
    return found


def print_table(table: Table) -> None:
    """Prints a table, as wide as a terminal of 100 columns or more; cells that are wider wrap."""
    Console(width=max(Console().width, _WIDTH)).print(table)


def print_line(out: Console, text: str) -> None:
    """Prints a result at once, so that it is there even if the command is cut short."""
    out.print(text, highlight=False, soft_wrap=True, markup=False)


def _allreduce(options: argparse.Namespace) -> int:
    import numpy as np

    from hvd_ft.reports.csv_file import write_csv
    from hvd_ft.tools.bench import allreduce, allreduce_output, output

    if options.op == "average" and options.dtype.startswith("int"):
        raise HvdFtError("--op average of whole numbers is truncated by Horovod, so no result "
                         "is right; give --op sum or another --dtype")  # fmt: skip
    _choose_framework(options)
    if options.framework == "torch" and (options.copies or options.op == "average"):
        flag = "--copies" if options.copies else "--op average"
        raise HvdFtError(f"{flag} is measured with --framework tensorflow only; leave it out")
    check_writable(options.csv, options.png)
    unit = np.dtype(options.dtype).itemsize * options.tensors
    options.sizes = sizes(options.min_bytes or unit, options.max_bytes, options.factor, unit)
    if options.copies:
        options.backends = [*options.backends, COPIES]
    plan = _plan(allreduce.Plan, options)
    out = Console()
    facts = _tell_facts(out)
    rows: list[Row] = []

    def publish() -> None:
        """Writes the files; every row has been printed when it was measured."""
        if options.csv:
            lines = allreduce_output.csv_lines(plan, rows)
            write_csv(options.csv, facts, allreduce_output.CSV_COLUMNS, lines)
        if options.png:
            output.write_picture(options.png, allreduce_output.picture(plan, rows))

    print_line(out, allreduce_output.header(plan))
    working = out.status("") if out.is_terminal else contextlib.nullcontext()
    with published(publish, lambda: rows), working as status:
        show = status.update if status else lambda doing: None
        for row in allreduce.measure(plan, show):
            rows.append(row)
            print_line(out, allreduce_output.lines(plan, row))
    wrong = sum(times.wrong for row in rows for times in row.times.values())
    if wrong:
        raise HvdFtError(f"{wrong} elements came out wrong, see #wrong; do not use this backend")
    return 0


def _training(options: argparse.Namespace) -> int:
    from hvd_ft.reports.csv_file import write_csv
    from hvd_ft.tools.bench import output, training, training_output

    _choose_framework(options)
    check_writable(options.csv, options.png)
    plan = _plan(training.Plan, options)
    out = Console()
    facts = _tell_facts(out)
    results: list[training.Result] = []

    def publish() -> None:
        if measured := [each for each in results if each.is_measured(plan.backends)]:
            print_table(training_output.throughput_table(plan, measured))
        if failed := [each for each in results if each.killed]:
            print_table(training_output.failure_table(plan, failed))
        if options.csv:
            lines = training_output.csv_lines(results)
            write_csv(options.csv, facts, training_output.CSV_COLUMNS, lines)
        if options.png and measured:
            output.write_picture(options.png, training_output.picture(plan, measured))

    working = out.status("") if out.is_terminal else contextlib.nullcontext()
    with published(publish, lambda: results), working as status:
        show = status.update if status else out.print
        training.measure(plan, results, show, lambda text: print_line(out, text))
    return 0


def _plan(kind: Callable[..., _Plan], options: argparse.Namespace) -> _Plan:
    """Makes a plan from the options with the names of its fields."""
    names = inspect.signature(kind).parameters
    return kind(**{name: getattr(options, name) for name in names})


def _tell_facts(out: Console) -> dict[str, str]:
    from hvd_ft.tools.bench import machine

    facts = machine.facts()
    for name, value in facts.items():
        out.print(f"{name}: {value}", highlight=False, soft_wrap=True)
    return facts
