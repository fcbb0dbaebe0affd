"""The flags of `hvdft agent`, for its own parser and for the help of `hvdft`."""

import argparse


def add_agent_flags(parser: argparse.ArgumentParser) -> None:
    """Adds them.

    Args:
        parser: where to.
    """
    parser.add_argument("--on-failure", metavar="CMD", help="run CMD when the worker dies")
    parser.add_argument("--on-restart", metavar="CMD", help="run CMD when the rank is back")
    parser.add_argument("--report", metavar="FILE", help="write the job's events as JSON Lines")
    parser.add_argument(
        "--inject",
        metavar="DRILL",
        action="append",
        default=[],
        help="make a worker die, as hvdft run's; may be repeated (docs/how-to/drills.md)",
    )
    parser.add_argument(
        "--spares", type=int, default=0, metavar="N", help="keep N warm spares, as hvdft run's"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the training command")
