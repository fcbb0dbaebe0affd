"""Compares what failures cost: started again from checkpoints, Horovod Elastic, hvd_ft.

The same training and the same kills. README.md in this folder tells what is measured;
`python -m experiments.failures.run --help` the flags.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.common import (
    add_output,
    count,
    end_with,
    read_csv,
    write_csv,
)
from experiments.failures import show
from experiments.failures.watching import Killer, MemoryOverTime
from experiments.sides import SIDES, Side, Steps, attempt, available, empty_log
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.environment import check_environment

HERE = Path(__file__).resolve().parent
FILES = ("results", "lost", "memory")


def train(
    side: Side, every: float, options: argparse.Namespace, log: Path
) -> tuple[dict[str, object], list[dict[str, object]], list[dict[str, object]]]:
    """Trains to the end, however often it has to be started; a process is killed again and again.

    Args:
        side: How.
        every: Seconds between kills; 0: there are none.
        options: Of the command line.
        log: Takes the output.

    Returns:
        The training's row; a row for each kill that was over before the next; one for each sample
        of the memory.
    """
    flags = ["--epochs", str(options.epochs), "--step-seconds", str(options.step_seconds)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if side.way == "stock":
            flags += ["--checkpoint", str(folder / "checkpoint.npz")]
            flags += ["--checkpoint-steps", str(options.checkpoint_steps)]
        begin, attempts, ended = time.monotonic(), 0, False
        with MemoryOverTime() as memory, Killer(every, folder) as killer:
            while not ended and (left := begin + options.limit - time.monotonic()) > 1:
                attempts += 1
                try:
                    more = memory.environment
                    _, ended = attempt(
                        side, options.ranks, flags, folder, log, limit_seconds=left, more=more
                    )
                except HvdFtError:  # the limit
                    break
                if not ended and not killer.kills:
                    raise HvdFtError(f"the {side.name} job failed; its output is in {log}")
            seconds = time.monotonic() - begin
        steps = Steps.read(folder)
    who: dict[str, object] = {"side": side.name, "every": every}
    row = who | {
        "ended": int(ended),
        "seconds": round(seconds, 2),
        "kills": len(killer.kills),
        "attempts": attempts,
        "step_ms": round(1000 * steps.step_seconds, 1),
        "accuracy": steps.accuracy if ended else "",
        "most_mib": max((mib for _, mib in memory.samples), default=0),
    }
    samples = [who | {"second": second, "mib": mib} for second, mib in memory.samples]
    return row, [who | each for each in losses(killer.kills, steps, options.ranks)], samples


def losses(kills: Sequence[int], steps: Steps, ranks: int) -> list[dict[str, object]]:
    """Returns what each kill has cost that was made good before the next one.

    Args:
        kills: When, in ns.
        steps: Of the training.
        ranks: Of the training.

    Returns:
        For each the seconds in which no new step was done, less what a step takes.
    """
    rows: list[dict[str, object]] = []
    for kill, next_kill in itertools.zip_longest(kills, kills[1:]):
        found = steps.standstill(kill, ranks)
        if found is not None and (next_kill is None or found[1] < next_kill):
            rows.append({"lost_s": round(found[0] - steps.step_seconds, 3)})
    return rows


def table(results: Sequence[Mapping[str, str]], lost: Sequence[Mapping[str, str]]) -> str:
    """Returns total times by interval, and the time lost per failure, as a Markdown table."""
    intervals = sorted({float(row["every"]) for row in results})
    heads = [f"a kill every {every:g} s" if every else "no kill" for every in intervals]
    lines = [f"| | lost per kill, s | {' | '.join(heads)} |", "|---" * (len(heads) + 2) + "|"]
    for name in (name for name in SIDES if any(row["side"] == name for row in results)):
        own = [float(row["lost_s"]) for row in lost if row["side"] == name]
        spread = f"({min(own):.1f} to {max(own):.1f}; {len(own)})" if own else ""
        cells = [f"{statistics.median(own):.1f} {spread}" if own else ""]
        for every in intervals:
            mine = [r for r in results if (r["side"], float(r["every"])) == (name, every)]
            ended = [float(row["seconds"]) for row in mine if row["ended"] == "1"]
            not_ended = [f"not in {float(r['seconds']):.0f}" for r in mine if r["ended"] == "0"]
            cells.append(", ".join([*(f"{each:.0f}" for each in ended), *not_ended]))
        lines.append(f"| {' '.join(SIDES[name].label.split())} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measures, the sides taking turns; writes three CSV files and pictures, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=2)
    parser.add_argument("--ranks", type=count, default=4)
    parser.add_argument("--epochs", type=count, default=12)
    parser.add_argument("--step-seconds", type=float, default=0.15,
                        help="that a step waits, as for an accelerator")  # fmt: skip
    parser.add_argument("--checkpoint-steps", type=count, default=50, help="between checkpoints")
    parser.add_argument("--every", type=float, nargs="*", default=[0.0, 60.0, 40.0, 25.0],
                        help="seconds between kills; 0: none")  # fmt: skip
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of a training")
    parser.add_argument("--sides", nargs="*", choices=SIDES,
                        default=["stock", "elastic", "elastic-5s", "ft", "ft-spare"])  # fmt: skip
    parser.add_argument("--more", action="store_true", help="adds to what is there")
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    sides, log = available(options.sides), empty_log("failures")
    paths = [options.output / f"{name}.csv" for name in FILES]
    kept: list[list[Mapping[str, object]]] = [[*read_csv(p)] if options.more else [] for p in paths]
    for repeat in range(options.repeats):
        for every in options.every:
            # Who goes first changes, so that no side has the warmer machine.
            for side in sides if repeat % 2 == 0 else reversed(sides):
                row, lost, samples = train(side, every, options, log)
                print(row, [each["lost_s"] for each in lost], flush=True)
                for path, rows, new in zip(paths, kept, ([row], lost, samples), strict=True):
                    rows.extend(new)
                    if rows:
                        write_csv(path, rows)
    results, lost_rows, memory = (read_csv(path) for path in paths)
    show.losses(lost_rows).savefig(options.output / "lost.png", dpi=150)
    show.totals(results, lost_rows).savefig(options.output / "totals.png", dpi=150)
    show.memory(memory).savefig(options.output / "memory.png", dpi=150)
    print(table(results, lost_rows))
    return 0


if __name__ == "__main__":
    end_with(main)
