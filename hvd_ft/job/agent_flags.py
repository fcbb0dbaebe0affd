"""The flags that `hvdft run` and `hvdft agent` have in common: the first passes them on."""

import argparse
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.system.command_line import whole


def add_agent_flags(
    parser: argparse.ArgumentParser,
    *,
    survive: Any = None,
    observe: Any = None,
    rehearse: Any = None,
) -> None:
    """Adds them.

    Args:
        parser: where to.
        survive: its group of flags about failures; None: it has no groups.
        observe: likewise, about what is seen of the job.
        rehearse: likewise, about drills.
    """
    survive, observe, rehearse = survive or parser, observe or parser, rehearse or parser
    survive.add_argument(
        "--on-failure", metavar="CMD", help="run CMD in a shell when a worker dies"
    )
    survive.add_argument(
        "--on-restart", metavar="CMD", help="run CMD in a shell when a rank is back"
    )
    observe.add_argument(
        "--report", metavar="FILE", help="write the run's events, one JSON object per line"
    )
    observe.add_argument(
        "--trace-ops",
        action="store_true",
        help="write the times of single ops, and of their phases in the ring between nodes, into "
        "the report, for hvdft report --trace",
    )
    rehearse.add_argument(
        "--inject",
        metavar="DRILL",
        action="append",
        default=[],
        help="make a worker die, such as rank=2,step=30,signal=KILL; may be repeated "
        "(docs/how-to/drills.md)",
    )
    survive.add_argument(
        "--spares",
        type=whole(0, "spares"),
        default=0,
        metavar="N",
        help="keep N processes ready, with the framework imported, to replace dead ones",
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="the training command, such as: python train.py (its stdin is empty)",
    )


def check_agent_flags(options: argparse.Namespace) -> None:
    """Checks them together.

    Raises:
        HvdFtError: they contradict each other.
    """
    if options.trace_ops and not options.report:
        raise HvdFtError(
            "--trace-ops writes into the report, and there is none; give --report FILE"
        )
