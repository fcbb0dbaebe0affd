"""The main job, end to end: 4 ranks train, one is killed, training continues as if it had not.

`make demo` runs this. It trains examples/digits_keras.py twice, once with a kill and once without,
and compares the final weights.
"""

import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.job import Job, resolve
from hvd_ft.launcher.live_display import display
from hvd_ft.launcher.run import launch
from hvd_ft.native.observer import Observer
from hvd_ft.reports.plot import save_states
from hvd_ft.reports.report import Failure, failures, read_report, steps_lost

ROOT = Path(__file__).resolve().parent.parent
RANKS = 4
EPOCHS = 12
STEPS = EPOCHS * 25  # 1400 images, 4 ranks, batches of 14
VICTIM = 2
KILL_STEP = STEPS // 2


@dataclass
class Killer:
    """Kills the worker of one rank once it has come to a step."""

    rank: int
    step: int
    kills: dict[tuple[int, int], int] = field(default_factory=dict)  # as report.failures() wants
    killed_step: int = 0

    def __call__(self, observer: Observer) -> None:
        status = observer.status(self.rank)
        if not self.kills and status.pid and status.step >= self.step:
            self.kills[self.rank, status.incarnation] = time.monotonic_ns()
            self.killed_step = status.step
            os.kill(status.pid, signal.SIGKILL)


def train(console: Console, report: Path, killer: Killer | None = None) -> list[dict[str, Any]]:
    """Runs the training script on all ranks.

    Args:
        console: Where to show it.
        report: File for the run's events.
        killer: Disturbs the run.

    Returns:
        For each rank what it wrote about its end.

    Raises:
        HvdFtError: The job failed.
    """
    with tempfile.TemporaryDirectory(prefix="hvdft-demo-") as results:
        script = str(ROOT / "examples" / "digits_keras.py")
        command = [sys.executable, script, "--epochs", str(EPOCHS), "--result", results]
        with display(console, live=console.is_terminal) as shown:
            code = launch(resolve(Job(RANKS, command, report=str(report))), shown, killer)
        if code != 0:
            raise HvdFtError(f"the training job ended with exit code {code}; see its output above")
        return [
            json.loads((Path(results) / f"rank-{rank}.json").read_text()) for rank in range(RANKS)
        ]


def summary(
    disturbed: list[dict[str, Any]],
    undisturbed: list[dict[str, Any]],
    killer: Killer,
    failure: Failure,
) -> Table:
    """Lays out what the demo has shown."""
    survivors = [result["computed"] for result in disturbed if result["rank"] != failure.rank]
    lost = steps_lost(STEPS, [result["steps"] for result in disturbed], survivors)
    waits = failure.waits.values()
    table = Table(title="One rank killed in mid-training", title_justify="left", show_header=False)
    table.add_row("test accuracy", f"{disturbed[0]['accuracy']:.2%}")
    table.add_row(
        "ranks killed", f"1 (rank {failure.rank} at step {killer.killed_step} of {STEPS})"
    )
    table.add_row("steps lost", str(lost))
    if waits:
        table.add_row("the others waited", f"{min(waits):.2f} to {max(waits):.2f} s; of this")
    for name, seconds in failure.times.items():
        label = {"import": "import of TensorFlow"}.get(name, name)
        table.add_row(f"  {label}", "-" if seconds is None else f"{seconds:.3f} s")
    table.add_section()
    for result in disturbed:
        table.add_row(f"weights of rank {result['rank']}", result["weights_sha256"][:32])
    for digest in sorted({result["weights_sha256"] for result in undisturbed}):
        table.add_row("undisturbed run", digest[:32])
    return table


def main() -> int:
    """Runs the demo; returns 0 if the weights of both runs are equal on all ranks."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    console = Console()
    begin = time.monotonic()
    out = ROOT / "out"
    out.mkdir(exist_ok=True)
    killer = Killer(VICTIM, KILL_STEP)
    console.print(f"{RANKS} ranks train; rank {VICTIM} is killed at step {KILL_STEP}.")
    disturbed = train(console, out / "demo.jsonl", killer)
    console.print("The same training, undisturbed.")
    undisturbed = train(console, out / "undisturbed.jsonl")

    report = read_report(out / "demo.jsonl")
    events = report.events
    found = failures(events, killer.kills)
    if len(found) != 1:
        raise HvdFtError(f"the demo expects 1 failure and saw {len(found)}; see out/demo.jsonl")
    save_states(out / "demo.png", events, killer.kills, report.facts)
    console.print(summary(disturbed, undisturbed, killer, found[0]))
    equal = len({result["weights_sha256"] for result in disturbed + undisturbed}) == 1
    console.print(
        "The final weights are equal, bit for bit, on every rank and in both runs."
        if equal
        else "[bold red]The final weights differ.[/]"
    )
    console.print("Every rank's state over time: out/demo.png. Its events: out/demo.jsonl.")
    console.print(f"The demo took {time.monotonic() - begin:.0f} s.")
    return 0 if equal else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HvdFtError as error:
        sys.exit(f"hvdft: {error}")
