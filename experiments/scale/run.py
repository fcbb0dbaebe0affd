"""What does a rank more cost? Counts messages, bytes and wake-ups of jobs of growing size.

The largest are simulated (make sim-large). Draws both into plot.png.
Example: .venv/bin/python -m experiments.scale.run --kinds flat --label now
"""

import argparse
import contextlib
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common import (
    HVDFT,
    ROOT,
    add_output,
    cluster_up,
    count,
    end_with,
    output_of,
    read_csv,
    run_to_end,
    write_csv,
)
from experiments.scale.show import plot
from hvd_ft.errors import HvdFtError

FOLDER = Path(__file__).resolve().parent
RANKS_OF_A_NODE = 4  # in the cluster


@dataclass(frozen=True)
class Kind:
    """A series of jobs.

    Attributes:
        sizes: of the jobs: ranks, or nodes.
        of: what is counted so.
    """

    sizes: Sequence[int]
    of: str


KINDS = {
    "node": Kind((4, 8, 16, 32, 64), "ranks"),  # of one node
    "flat": Kind((2, 4, 8, 16), "nodes"),  # of one rank, on one host
    "cluster": Kind((2, 4, 8, 16), "nodes"),  # of several ranks; needs root
}


@contextlib.contextmanager
def place(kind: str, size: int) -> Iterator[tuple[list[str], list[str], int]]:
    """Yields the words before `hvdft`, the flags of `hvdft run`, and the ranks of a job."""
    if kind == "node":
        yield [], [], size
    elif kind == "flat":
        yield [], ["--topology", "flat"], size
    else:
        cluster = [*HVDFT, "cluster"]
        placement = "-".join([str(RANKS_OF_A_NODE)] * size)
        with cluster_up("scale", size) as name:
            hosts = output_of([*cluster, "hosts", "--name", name, placement]).strip()
            yield [*cluster, "run", "--name", name, "--"], ["-H", hosts], RANKS_OF_A_NODE * size


def run_job(kind: str, size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Runs a job; returns its row.

    Raises:
        HvdFtError: The job failed.
    """
    script = [
        "-m",
        "experiments.scale.worker",
        "--ops",
        str(options.ops),
        "--bytes",
        str(options.bytes),
    ]
    script += ["--idle", str(options.idle)]
    with place(kind, size) as (before, flags, ranks), tempfile.TemporaryDirectory() as counts:
        command = [*before, *HVDFT, "run", "-np", str(ranks), *flags, sys.executable, *script]
        started = time.time()
        output_of([*command, "--output", counts])
        found = [json.loads(Path(counts, f"{r}.json").read_text()) for r in range(ranks)]
    return {"label": options.label, "kind": kind, KINDS["node"].of: ranks} | row_of(found, started)


def row_of(found: Sequence[dict[str, Any]], started: float) -> dict[str, Any]:
    """Returns a job's row from what its ranks have counted, in the order of the ranks."""
    mib = 2**20
    others = [counts for counts in found if not counts["leads"]]
    leaders = [counts for counts in found if counts["leads"]]
    row: dict[str, Any] = {
        "nodes": len(leaders),
        **start_row([counts["start"] for counts in found], started),
        "terms": max(c["term"] for c in found),
        "leader_mib": round(max(c["agent_pss"] for c in leaders) / mib, 1),
        "agent_mib": round(max(c["agent_pss"] for c in others) / mib, 1) if others else "",
        "arena_0_mib": round(leaders[0]["arena"] / mib, 1),
        "arena_mib": round(leaders[-1]["arena"] / mib, 1),
    }
    for when in ("op", "idle"):
        for name in found[0][when]:
            row[f"{when}_{name}"] = round(sum(c[when][name] for c in found), 2)
    # Of all agents together, and of the busiest one: where a star has its centre.
    row["idle_cpu_most"] = round(max(c["idle"]["agent_cpu_us"] for c in found) / 1e4, 2)  # percent
    return row


def start_row(starts: Sequence[dict[str, float]], started: float) -> dict[str, float]:
    """Returns when the last rank had come how far, and the CPU time of all ranks until then.

    Args:
        starts: Of the ranks.
        started: When `hvdft run` was started.
    """
    last = {
        name: round(max(start[f"{at}_at"] for start in starts) - started, 2)
        for name, at in (
            ("agents_s", "agent"),
            ("workers_s", "worker"),
            ("entered_s", "entered"),
            ("start_s", "first_op"),
        )
    }
    used = ("agent_cpu_s", "shim_cpu_s", "worker_cpu_s")
    return last | {f"start_{name}": round(sum(start[name] for start in starts), 2) for name in used}


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Returns e of the power law, values ~ sizes ** e, that fits best; 0 for what does not grow.

    Args:
        sizes: At least two different ones.
        values: As many; the law is of those above 0.
    """
    points = [(math.log(s), math.log(v)) for s, v in zip(sizes, values, strict=True) if v > 0]
    if len({x for x, _ in points}) < 2:
        return 0.0
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    over = sum((x - x_mean) * (y - y_mean) for x, y in points)
    return over / sum((x - x_mean) ** 2 for x, _ in points)


def print_growth(rows: Sequence[dict[str, Any]]) -> None:
    """Prints each count of each series, and how it grows."""
    for label, kind in dict.fromkeys((row["label"], row["kind"]) for row in rows):
        mine = [row for row in rows if (row["label"], row["kind"]) == (label, kind)]
        of = KINDS[kind].of
        sizes = [float(row[of]) for row in mine]
        print(f"\n{label}, {kind}: {of} {', '.join(f'{size:g}' for size in sizes)}")
        for name in list(mine[0])[4:]:
            values = [float(row[name] or 0) for row in mine]
            growth = f"{of} ^ {exponent(sizes, values):.2f}" if len(set(sizes)) > 1 else ""
            print(f"  {name:22}{' '.join(f'{value:10g}' for value in values)}   {growth}")


def simulate(sizes: str, label: str) -> list[dict[str, Any]]:
    """Simulates jobs of these sizes, such as `64,256`; returns their rows.

    Raises:
        HvdFtError: One of them failed.
    """
    if run_to_end(["make", "sim-large", f"RANKS={sizes}"]).returncode:
        raise HvdFtError("the simulation failed, see above")
    return [{"label": label, **row} for row in read_csv(ROOT / "out" / "sim-large.csv")]


def count_jobs(options: argparse.Namespace, path: Path) -> None:
    """Runs the jobs of each kind; their rows replace those of the same label and kind."""
    rows = [
        row
        for row in read_csv(path)
        if row["label"] != options.label or row["kind"] not in options.kinds
    ]
    new: list[dict[str, Any]] = []
    for kind in options.kinds:
        for size in KINDS[kind].sizes:
            if size <= options.most:
                new.append(run_job(kind, size, options))
                write_csv(path, rows + new)
    print_growth(new)


def main() -> int:
    lines = __doc__.splitlines()
    parser = argparse.ArgumentParser(
        description=f"{lines[0]} {lines[2]}",
        epilog=lines[-1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=["node", "flat"])
    parser.add_argument("--most", type=count, default=64, help="ranks or nodes, at most")
    parser.add_argument("--ops", type=count, default=200, help="that are counted")
    parser.add_argument("--bytes", type=count, default=1024, help="of an op")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds that are counted")
    parser.add_argument("--simulate", metavar="SIZES", help="such as 64,256,1024: ranks")
    parser.add_argument("--label", default="now", help="of these rows in the files")
    add_output(parser, FOLDER)
    options = parser.parse_args()
    path, simulated = (options.output / name for name in ("results.csv", "simulated.csv"))
    for file in (path, simulated):
        if not file.exists():  # rows of other labels and kinds are drawn beside the new ones
            shutil.copy(FOLDER / file.name, file)
    if options.kinds:
        count_jobs(options, path)
    if options.simulate:
        others = [row for row in read_csv(simulated) if row["label"] != options.label]
        write_csv(simulated, others + simulate(options.simulate, options.label))
    plot(read_csv(path), read_csv(simulated)).savefig(options.output / "plot.png", dpi=110)
    return 0


if __name__ == "__main__":
    end_with(main)
