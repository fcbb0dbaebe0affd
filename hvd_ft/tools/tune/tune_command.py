"""The command line of `hvdft tune`."""

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.host_names import check_known, is_this_host
from hvd_ft.system.command_line import AddCommand, whole
from hvd_ft.system.published import published
from hvd_ft.system.say import say
from hvd_ft.system.writable import check_writable, write_file
from hvd_ft.tools.tune.flags import hosts_of, positive, sizes

if TYPE_CHECKING:
    from hvd_ft.tools.tune.tune import Result

_SIZES = "4K,64K,1M,16M,64M"


def add_tune(commands: Any, add: AddCommand) -> None:
    """Adds `tune` to the command line.

    Args:
        commands: The parsers to which this one is added.
        add: Makes a command's parser from its place, name, help and example.
    """
    what = "find the fastest settings for these hosts by measuring; hvdft run takes them"
    parser = add(commands, "tune", what, "hvdft tune -np 8 -H n0:4,n1:4 --minutes 10")
    parser.add_argument("-np", "--num-proc", type=whole(), required=True, metavar="N",
                        help="number of ranks, as for hvdft run")  # fmt: skip
    parser.add_argument("-H", "--hosts", metavar="HOST:N,...",
                        help="hosts and their slots, as for hvdft run; this host first (default: "
                        "all ranks on this host)")  # fmt: skip
    parser.add_argument("--minutes", type=positive, default=10.0, metavar="M",
                        help="search no longer than that (default: 10)")  # fmt: skip
    parser.add_argument("--sizes", type=sizes, default=sizes(_SIZES), metavar="LIST",
                        help=f"bytes of the allreduces, of equal weight (default: {_SIZES})",
                        )  # fmt: skip
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="LIST",
                        help="of the settings that it would try, such as gather,nap")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE",
                        help="write the settings to FILE (default: where hvdft run looks for those "
                        "of these hosts)")  # fmt: skip
    parser.add_argument("--png", metavar="FILE", help="draw what was compared")
    parser.set_defaults(handler=_tune)


def _tune(options: argparse.Namespace) -> int:
    from hvd_ft.installed.environment import check_environment
    from hvd_ft.launcher import tuning_file
    from hvd_ft.launcher.tuning import place_here
    from hvd_ft.reports.plot import png
    from hvd_ft.tools.tune import space, tune_output
    from hvd_ft.tools.tune.search import Search
    from hvd_ft.tools.tune.tune import Plan, tune

    size = options.num_proc
    hosts = hosts_of(options.hosts, size)
    check_known(hosts, os.environ)
    if hosts and not is_this_host(hosts[0].name):
        raise HvdFtError(
            f"-H {options.hosts}: hvdft tune runs on the first host: name this one first"
        )
    check_environment()
    path = options.output
    if path is None:
        path = tuning_file.default_path(place_here(hosts, size, os.environ).hosts, os.environ)
        os.makedirs(os.path.dirname(path), exist_ok=True)
    check_writable(path, options.png)
    knobs = _chosen(space.knobs(space.look(hosts, size, os.environ)), options.only)
    say(f"tries {', '.join(knob.name for knob in knobs)}, for {options.minutes:g} min at most")
    plan = Plan(hosts, size, options.sizes, 60 * options.minutes, knobs)
    search = Search(knobs)
    result: Result | None = None
    out = Console(width=max(Console().width, 100))

    def publish() -> None:
        out.print(tune_output.comparisons_table(search.comparisons))
        if result is None:
            found = _words(plan.variables(search.point)) or "nothing"
            say(
                f"taken so far: {found}; not checked against the defaults, so {path} stays as it is"
            )
        else:
            out.print(tune_output.sizes_table(result))
            _say_result(result)
            write_file(path, tuning_file.to_text(result.tuning).encode())
            say(f"written to {path}")
        if options.png:
            seconds = result.tuning.seconds if result else {}
            write_file(options.png, png(tune_output.picture(search.comparisons, seconds)))

    with published(publish, lambda: any(each.ratios for each in search.comparisons)):
        result = tune(plan, say, search)
    return 0


def _say_result(result: "Result") -> None:
    from hvd_ft.launcher.tuning import describe

    if not result.in_time:
        say("the time was over before everything was compared: more --minutes may find more")
    if result.taken_back:
        say("the last check did not confirm what was found, so all settings stay as they are")
    words = _words(result.tuning.settings) or "the defaults are best here"
    say(f"{words}: {describe(result.tuning.change)}")


def _words(settings: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _chosen(knobs: list[Any], only: list[str] | None) -> list[Any]:
    """Returns the items that the user has chosen.

    Raises:
        HvdFtError: There is no item, or the user has named an unknown one.
    """
    names = [knob.name for knob in knobs]
    for name in only or ():
        if name not in names:
            raise HvdFtError(f"--only {name}: not tried here; give some of {','.join(names)}")
    if not knobs:
        raise HvdFtError(
            "there is nothing to try here that you have not set in the environment; "
            "unset some of it"
        )
    return [knob for knob in knobs if only is None or knob.name in only]
