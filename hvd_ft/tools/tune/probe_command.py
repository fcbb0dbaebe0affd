"""The command line of `hvdft probe`."""

import argparse
import os
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.host_names import check_known
from hvd_ft.system.command_line import AddCommand, whole
from hvd_ft.system.published import published
from hvd_ft.system.writable import check_writable
from hvd_ft.tools.tune.flags import counts, hosts_of, positive, sizes

_SIZES = "8,32,128,512,2K,8K,32K,128K,512K,2M,4M"
_WIDTH = 170


def add_probe(commands: Any, add: AddCommand) -> None:
    """Adds `probe` to the command line.

    Args:
        commands: The parsers to which this one is added.
        add: Makes a command's parser from its place, name, help and example.
    """
    what = (
        "measure message rate and bandwidth between two ranks: threads that share one MPI endpoint "
        "against an endpoint for each"
    )
    parser = add(commands, "probe", what, "hvdft probe -H n0:1,n1:1 --threads 1,2,4 --png out.png")
    parser.add_argument("-np", "--num-proc", type=whole(), default=2, metavar="N", help="2")
    parser.add_argument("-H", "--hosts", metavar="HOST:1,HOST:1",
                        help="the two hosts (default: both ranks on this one)")  # fmt: skip
    parser.add_argument("--threads", type=counts, default=[1, 2, 4], metavar="LIST",
                        help="numbers of threads of each rank (default: 1,2,4)")  # fmt: skip
    parser.add_argument("--sizes", type=sizes, default=sizes(_SIZES), metavar="LIST",
                        help=f"bytes of a message (default: {_SIZES})")  # fmt: skip
    parser.add_argument("--rounds", type=whole(), default=5, metavar="N",
                        help="of each side, which take turns (default: 5)")  # fmt: skip
    parser.add_argument("--seconds", type=positive, default=0.05, metavar="N",
                        help="of each measurement (default: 0.05)")  # fmt: skip
    parser.add_argument("--fabric", choices=("shm", "ofi"),
                        help="of two ranks on this host: shared memory (the default), or the "
                        "network's provider over loopback")  # fmt: skip
    parser.add_argument("--referee", action="store_true",
                        help="have Intel's IMB-MT measure the same beside (needs libiomp5.so: "
                        "pip install intel-openmp)")  # fmt: skip
    parser.add_argument("--csv", metavar="FILE", help="write the results, one a line")
    parser.add_argument("--png", metavar="FILE", help="draw the results")
    parser.set_defaults(handler=_probe)


def _probe(options: argparse.Namespace) -> int:
    from hvd_ft.reports.csv_file import write_csv
    from hvd_ft.reports.plot import png
    from hvd_ft.system.writable import write_file
    from hvd_ft.tools.tune import probe, probe_output

    if options.num_proc != 2:
        raise HvdFtError(f"-np {options.num_proc}: a probe is between two ranks; give -np 2")
    check_writable(options.csv, options.png)
    hosts = hosts_of(options.hosts, 2)
    check_known(hosts, os.environ)
    if len(hosts) not in (0, 2) or any(host.slots > 1 for host in hosts):
        raise HvdFtError(
            f"-H {options.hosts}: a probe has one rank on each of two hosts; give -H n0:1,n1:1"
        )
    if hosts and options.fabric == "shm":
        raise HvdFtError("--fabric shm is for two ranks on one host; leave it or -H out")
    by = (probe.OURS, probe.REFEREE) if options.referee else (probe.OURS,)
    fabric = options.fabric or ("ofi" if hosts else "shm")
    plan = probe.Plan(
        hosts, fabric, options.sizes, options.threads, options.rounds, options.seconds, by
    )
    out = Console()
    live = Live(console=out, auto_refresh=False, transient=True)
    found = probe.Found()

    def show(doing: str) -> None:
        if out.is_terminal:
            live.update(Text(doing), refresh=True)

    def publish() -> None:
        Console(width=max(out.width, _WIDTH)).print(probe_output.table(plan, found))
        facts = {"MPI": found.library, "between the ranks": found.between, "CPUs here": _cpus()}
        lines = [f"{name}: {value}" for name, value in facts.items()]
        if found.why:
            lines.append(f"no endpoints: {found.why}")
        for line in [*lines, *probe_output.agreement(plan, found)]:
            out.print(line, highlight=False, soft_wrap=True, markup=False)
        if options.csv:
            write_csv(options.csv, facts, probe_output.CSV_COLUMNS, probe_output.csv_lines(found))
        if options.png:
            write_file(options.png, png(probe_output.picture(plan, found)))

    with published(publish, lambda: found.rates), live:
        probe.measure(plan, show, found)
    if found.wrong:
        raise HvdFtError(
            f"{found.wrong} bytes did not arrive as they were sent: do not use this MPI or provider"
        )
    return 0


def _cpus() -> str:
    return str(len(os.sched_getaffinity(0)))
