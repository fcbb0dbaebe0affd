"""What the command lines of the rooms have in common."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from hvd_ft.system.nearest import meant
from hvd_ft.system.say import answer, say

EXIT_BAD_INPUT = 2
_MOST = 10**6


class Parser(argparse.ArgumentParser):
    """A command's parser, whose errors are one line that says what is probably meant.

    Attributes:
        elsewhere: Flags of a launcher that users come from, and what to do instead of each.
    """

    elsewhere: Mapping[str, str] = {}

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._experts: list[argparse.Action] = []

    def expert(self, *flags: argparse.Action) -> None:
        """Leaves flags out of `--help`; `--help-all`, which the parser gets, shows them.

        Args:
            flags: what `add_argument` has returned.
        """
        if not self._experts:
            text = "show all flags, those for experts too, and exit"
            self.add_argument("--help-all", action=_HelpAll, nargs=0, help=text)
        self._experts += flags

    def every(self) -> "Iterator[Parser]":
        """Yields this parser and those of all commands below it."""
        yield self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for command in action.choices.values():
                    yield from command.every()

    def format_help(self) -> str:
        """Returns the help, without the flags for experts."""
        helps = [flag.help for flag in self._experts]
        try:
            for flag in self._experts:
                flag.help = argparse.SUPPRESS
            return super().format_help()
        finally:
            for flag, text in zip(self._experts, helps, strict=True):
                flag.help = text

    def format_all(self) -> str:
        """Returns the help with all flags."""
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Says what is wrong, and ends the process with code 2."""
        say(f"{message}; see {self.prog} --help")
        raise SystemExit(EXIT_BAD_INPUT)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses a command's words; none of them may be unknown.

        Every command calls this for its own words, so an error names the command.
        """
        given = sys.argv[1:] if args is None else list(args)
        if not given and self._subparsers is not None:
            self.print_help(sys.stderr)
            raise SystemExit(EXIT_BAD_INPUT)
        found, unknown = super().parse_known_args(given, namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            hint = self.elsewhere.get(flag) or meant(flag, self._option_string_actions)
            what = f"unrecognized arguments: {' '.join(unknown)}"
            self.error(f"{what}: {hint}" if hint else what)
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        known = [str(choice) for choice in action.choices or ()]
        hint = meant(str(value), known)
        if hint and value not in known:
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}: {hint}")
        super()._check_value(action, value)


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        answer(parser.format_all().rstrip("\n"))
        parser.exit()


# Makes a command's parser of its place, name, help and example.
AddCommand = Callable[[Any, str, str, str], Parser]


def whole(least: int = 1, of: str = "") -> Callable[[str], int]:
    """Returns what reads a flag's whole number.

    Args:
        least: That it may be; at most a million.
        of: What it counts, such as `ranks`, for the error.
    """

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= _MOST:
            what = f"a number of {of}" if of else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}, {least} or more")
        return int(text)

    return read


def duration(text: str) -> float:
    """Reads a flag's time, such as `90`, `90s`, `10m` or `2h`; returns seconds, above 0."""
    match = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)([smh]?)", text, re.ASCII)
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    if not 0 < seconds <= 10**7:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, such as 90, 90s, 10m or 2h")
    return seconds
