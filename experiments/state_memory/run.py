"""Measures what the state of a training and its log take on a node, by model and by ranks.

README.md in this folder tells what is measured; `python -m experiments.state_memory.run --help` the
flags.
"""

import argparse
from pathlib import Path

from experiments.common import (
    add_output,
    count,
    end_with,
    largest_share,
    run_training,
    write_csv,
)
from hvd_ft.reports.report import failures

HERE = Path(__file__).resolve().parent
TRAIN = HERE.parent / "snapshot_cost" / "train.py"
_MIB = 1 << 20


def measure(parameters: int, ranks: int, steps: int, *, kill: bool) -> dict[str, object]:
    """Runs one training of a model with two dense layers and Adam.

    Args:
        parameters: of the model, in millions.
        ranks: of the job, on this host.
        steps: of the training.
        kill: whether the last rank is killed after half of them, and a spare takes over.

    Returns:
        A row of results.csv. Sizes in MiB, the most of each part; shares in percent of the training
        time, of the rank with the most; `digest` of the weights at the end.

    Raises:
        HvdFtError: the job failed.
    """
    width = round((parameters * 1e6 / 2) ** 0.5)
    drill = ["--spares", "1", "--inject", f"rank={ranks - 1},step={steps // 2}"] if kill else []
    flags = ["--width", str(width), "--steps", str(steps), "--snapshots", "chosen"]
    result, report = run_training(["-np", str(ranks), *drill], TRAIN, flags)
    most = report.facts["nodes"][0]["most"]
    steps_between = report.facts["ranks"][0]["snapshots"]["steps"]
    row: dict[str, object] = {"parameters": parameters, "ranks": ranks, "steps": steps}
    row |= {"killed": int(kill), "step_ms": round(result["step_median_ms"])}
    row |= {part: most[part] // _MIB for part in ("total", "shared_state", "private_state", "log")}
    row |= {"per_rank": most["total"] // _MIB // ranks, "worker": round(result["resident_mb"])}
    row |= {"every_steps": steps_between, "stall_percent": largest_share(report, "stall_ns")}
    row |= {"copy_percent": largest_share(report, "copy_ns"), "digest": result["digest"]}
    times = [failure.times for failure in failures(report.events)]
    row |= {f"{part}_s": times[0][part] if kill else "" for part in ("restore", "replay", "total")}
    return row


def main() -> int:
    """Measures one model after the other; writes results.csv."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=count, nargs="*", default=[25], help="in millions")
    parser.add_argument("--ranks", type=count, nargs="*", default=[2, 4, 8])
    parser.add_argument("--steps", type=count, default=40)
    parser.add_argument("--kill", action="store_true", help="another run of each, with a kill")
    add_output(parser, HERE)
    options = parser.parse_args()
    rows = []
    for parameters in options.parameters:
        for ranks in options.ranks:
            for kill in (False, True) if options.kill else (False,):
                row = measure(parameters, ranks, options.steps, kill=kill)
                print(row, flush=True)
                rows.append(row)
                write_csv(options.output / "results.csv", rows)
    return 0


if __name__ == "__main__":
    end_with(main)
