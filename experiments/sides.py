"""The sides of an experiment: jobs that all do the same training, train_digits.py."""

import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import elastic
from experiments.common import HVDFT, ROOT, run_to_end
from hvd_ft.errors import HvdFtError
from hvd_ft.mpi.environment import mpiexec_command
from hvd_ft.tools.bench.backends import stock_environment

NS = 1e9


@dataclass(frozen=True)
class Side:
    """One side.

    Attributes:
        name: In results.
        label: In pictures.
        way: Of train_digits.py to keep its state.
        colour: In pictures.
        gloo_seconds: Of an Elastic job: how long Gloo waits.
        spares: Of an ft job.
    """

    name: str
    label: str
    way: str
    colour: str
    gloo_seconds: int = 30
    spares: int = 0


SIDES = {
    side.name: side
    for side in (
        Side("stock", "stock Horovod on MPI,\nstarted again", "stock", "#D55E00"),
        Side("elastic", "Horovod Elastic\n(Gloo waits 30 s)", "elastic", "#CC79A7"),
        Side("elastic-5s", "Horovod Elastic\n(Gloo waits 5 s)", "elastic", "#E69F00", 5),
        Side("ft", "hvd_ft", "ft", "#0072B2"),
        Side("ft-spare", "hvd_ft,\na warm spare", "ft", "#56B4E9", spares=1),
    )
}


def available(names: Sequence[str]) -> list[Side]:
    """Returns the sides of these names; without Elastic, said so, if it has not been built."""
    found = [SIDES[name] for name in names]
    if not elastic.is_built() and any(side.way == "elastic" for side in found):
        print("Horovod Elastic is left out: python -m experiments.elastic builds it", flush=True)
        return [side for side in found if side.way != "elastic"]
    return found


@dataclass(frozen=True)
class Steps:
    """What the processes of a training have written down.

    Attributes:
        done: By process: number and time (CLOCK_MONOTONIC, ns) of each step it has done, in order.
        killed: Times of deaths that were ordered.
        accuracy: On the test set at the end; None if there was none.
    """

    done: Mapping[int, Sequence[tuple[int, int]]]
    killed: Sequence[int]
    accuracy: float | None

    @classmethod
    def read(cls, folder: Path) -> "Steps":
        """Reads the folder that was train_digits.py's `--notes`."""
        done: dict[int, list[tuple[int, int]]] = {}
        killed, accuracy = [], None
        for pid in pids(folder):
            own = done.setdefault(pid, [])
            for line in (folder / f"{pid}").read_text().splitlines():
                word, number, ns = line.split()
                if word == "step":
                    own.append((int(number), int(ns)))
                elif word == "killed":
                    killed.append(int(ns))
                elif word == "accuracy":
                    accuracy = float(number)
        return cls(done, sorted(killed), accuracy)

    @property
    def step_seconds(self) -> float:
        """The median time from a step to the next; NaN if there was none."""
        gaps = [
            later - ns
            for own in self.done.values()
            for (_, ns), (_, later) in itertools.pairwise(own)
        ]
        return statistics.median(gaps) / NS if gaps else math.nan

    def standstill(self, death_ns: int, ranks: int) -> tuple[float, int] | None:
        """Returns how long a death has kept all from a step that none had done, and its end.

        Args:
            death_ns: When.
            ranks: How many have to do that step.

        Returns:
            Seconds from the death until the last rank had done it, and when that was, in ns. None
            if it was not done.
        """
        all_done = [each for own in self.done.values() for each in own]
        before = max((step for step, ns in all_done if ns <= death_ns), default=0)
        ends = sorted(ns for step, ns in all_done if step == before + 1 and ns > death_ns)
        if len(ends) < ranks:
            return None
        return (ends[ranks - 1] - death_ns) / NS, ends[ranks - 1]


def pids(folder: Path) -> list[int]:
    """Returns the processes that have written into a folder."""
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]


def attempt(
    side: Side,
    ranks: int,
    flags: Sequence[str],
    folder: Path,
    log: Path,
    *,
    limit_seconds: float,
    more: Mapping[str, str] | None = None,
) -> tuple[float, bool]:
    """Runs the training once.

    Args:
        side: How.
        ranks: How many.
        flags: Of train_digits.py.
        folder: Takes what its processes write down.
        log: Takes the job's output.
        limit_seconds: How long it may take.
        more: Environment variables.

    Returns:
        Seconds, and whether it has ended well.

    Raises:
        HvdFtError: It took longer than the limit.
    """
    environment = {**os.environ}
    if side.way == "stock":
        environment = stock_environment()
        launch = [*mpiexec_command(ranks, environment), sys.executable]
    elif side.way == "elastic":
        environment = elastic.environment(side.gloo_seconds)
        launch = elastic.command(ranks, folder)
    else:
        spares = ["--spares", str(side.spares)] if side.spares else []
        launch = [*HVDFT, "run", "-np", str(ranks), "--no-live", *spares, sys.executable]
    script = ["-m", "experiments.train_digits", "--side", side.way, "--notes", str(folder)]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(ROOT)}
    begin = time.perf_counter()
    with log.open("ab") as output:
        ended = run_to_end(
            [*launch, *script, *flags],
            limit_seconds,
            env={**environment, **quiet, **(more or {})},
            stdout=output,
            stderr=output,
        )
    return time.perf_counter() - begin, ended.returncode == 0


def empty_log(name: str) -> Path:
    """Returns the file in `out/` that takes the output of an experiment's jobs, emptied."""
    path = ROOT / "out" / f"{name}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    return path


def check_ended(ended: bool, side: Side, log: Path) -> None:
    """Raises HvdFtError if a training has died that should not have."""
    if not ended:
        raise HvdFtError(f"the {side.name} job died unexpectedly; its output is in {log}")
