"""Measures how long a job stands still when a worker, an agent or a host dies, and what that takes.

Makes the hosts out of namespaces, so it needs root. README.md in this folder tells what is
measured; `python -m experiments.lost_host.run --help` the flags.
"""

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from experiments.common import (
    HVDFT,
    add_output,
    cluster_up,
    count,
    end_with,
    inside,
    write_csv,
)
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.environment import check_environment
from hvd_ft.tools.cluster.cluster_dir import ClusterDir
from hvd_ft.tools.cluster.faults import kill

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOSTS, VICTIM = "n0:1,n1:1,n2:1", 1  # rank 1 is on n1
RANKS = 3
RATE = "1gbit"
RATE_BYTES = 956e6 / 8  # that a TCP stream gets of it (docs/cluster.md)
DIE_STEP, STEPS = 14, 22
KINDS = ("none", "worker", "agent", "host", "shrink", "in place")
FLAGS = {
    "none": [],
    "worker": ["--inject", f"rank={VICTIM},step={DIE_STEP}"],
    "agent": ["--inject", f"agent={VICTIM},step={DIE_STEP}"],
    "host": ["--spare-hosts", "n3:1"],
    "shrink": ["--min-np", "2", "--checkpoint-dir", "{folder}/checkpoints"],
    "in place": [
        *("--min-np", "2", "--in-place", "--spares", "1"),
        *("--checkpoint-dir", "{folder}/checkpoints"),
    ],
}
LIMIT_SECONDS = 300.0
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
NS = 1e9


class Job:
    """A job on a cluster, with what it says and when.

    Args:
        cluster: name of the cluster.
        flags: of `hvdft run`.
        script: the words of the training.
        log: takes all that it says.
    """

    def __init__(
        self, cluster: str, flags: Sequence[str], script: Sequence[str], log: Path
    ) -> None:
        job = [*HVDFT, "run", "--verbose", "-np", str(RANKS), "-H", HOSTS, *flags]
        self._process = subprocess.Popen(
            [*inside(cluster), *job, *script],
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[tuple[int, str]] = []  # ns, line
        self._log = log
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        with self._log.open("a") as log:
            for line in self._process.stdout:
                self.said.append((time.monotonic_ns(), line))
                log.write(line)

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def end(self) -> None:
        """Waits for its end.

        Raises:
            HvdFtError: it failed, or takes too long.
        """
        try:
            code = self._process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise HvdFtError(f"the job does not end; its output is in {self._log}") from None
        self._reader.join(10)
        if code:
            raise HvdFtError(f"the job failed; its output is in {self._log}")

    def when(self, pattern: str) -> int | None:
        """Returns when it first said a line with this pattern, in ns; None if it has not."""
        return next((ns for ns, line in self.said if re.search(pattern, line)), None)

    def found(self, pattern: str) -> list[tuple[str, ...]]:
        """Returns the groups of a pattern in all lines that have it."""
        return [match.groups() for _, line in self.said for match in re.finditer(pattern, line)]


@dataclass(frozen=True)
class Death:
    """The moment of a death lies between these two, in ns: a host's link is cut first."""

    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Steps:
    """The steps that each process has done, in order: number, and ns.

    Attributes:
        done: By job, rank and incarnation.
    """

    done: Mapping[tuple[str, int, int], Sequence[tuple[int, int]]]

    @classmethod
    def read(cls, folder: Path) -> "Steps":
        """Reads what train.py has written."""
        found = {}
        for path in folder.iterdir():
            job, rank, incarnation = path.name.rsplit("-", 2)
            lines = [line.split() for line in path.read_text().splitlines()]
            found[job, int(rank), int(incarnation)] = [(int(step), int(ns)) for step, ns in lines]
        return cls(found)

    @property
    def latest(self) -> int:
        """The newest step that any process has done; 0: none."""
        return max((step for done in self.done.values() for step, _ in done), default=0)

    def next_after(self, death: Death, ranks: int) -> int:
        """Returns when all ranks had done the first step that none had done by then, in ns."""
        before = max(s for done in self.done.values() for s, ns in done if ns <= death.end_ns)
        by_step: dict[int, dict[int, int]] = defaultdict(dict)
        for (_, rank, _), done in self.done.items():
            for step, ns in done:
                if ns > death.end_ns and step > before:
                    by_step[step][rank] = ns
        return min(max(of.values()) for of in by_step.values() if len(of) == ranks)

    def of_victim(self, step: int) -> int:
        """Returns when the rank that dies had done a step, in ns."""
        [own] = [done for (_, *who), done in self.done.items() if who == [VICTIM, 0]]
        return dict(own)[step]

    @property
    def lost(self) -> int:
        """How many steps the ranks that did not die have done twice, or not at all."""
        others = [done for (_, rank, _), done in self.done.items() if rank != VICTIM]
        assert len(others) == RANKS - 1
        times = [Counter(step for step, _ in done) for done in others]
        return sum(abs(done[step] - 1) for done in times for step in range(1, STEPS + 1))

    @property
    def seconds(self) -> float:
        """The median time from a step to the next."""
        gaps = [
            later - ns
            for (_, _, incarnation), done in self.done.items()
            for (_, ns), (_, later) in itertools.pairwise(done[2:])
            if incarnation == 0
        ]
        return statistics.median(gaps) / NS


def measure(kind: str, repeat: int, width: int, log: Path) -> dict[str, object]:
    """Runs one job in which something dies; returns a row of results.csv.

    Args:
        kind: one of KINDS.
        repeat: from 0.
        width: of the model's layers.
        log: takes the output.

    Raises:
        HvdFtError: the job failed.
    """
    with tempfile.TemporaryDirectory() as folder, cluster_up("lost", 4, RATE) as cluster:
        times = Path(folder, "times")
        times.mkdir()
        flags = [word.format(folder=folder) for word in FLAGS[kind]]
        script = [sys.executable, "-m", "experiments.lost_host.train", "--times", str(times)]
        job = Job(cluster, flags, [*script, "--width", str(width), "--steps", str(STEPS)], log)
        death = None
        if kind in ("host", "shrink", "in place"):
            while job.runs and Steps.read(times).latest < DIE_STEP:
                time.sleep(0.05)  # the files come from the hosts one by one, and grow
            begin = time.monotonic_ns()
            kill(ClusterDir(cluster), f"n{VICTIM}")
            death = Death(begin, time.monotonic_ns())
        job.end()
        steps = Steps.read(times)
    if kind in ("worker", "agent"):
        at = steps.of_victim(DIE_STEP)
        death = Death(at, at)
    ends = {(rank, digest) for rank, digest in job.found(r"END (\d+) of \d+: (\w+)")}
    return {
        "kind": kind,
        "repeat": repeat,
        "width": width,
        "state_bytes": max(int(size) for (size,) in job.found(r"END .*, (\d+) bytes")),
        "step_s": round(steps.seconds, 3),
        **recovery(job, steps, death, RANKS - 1 if kind == "shrink" else RANKS),
        "steps_lost": "" if kind == "shrink" else steps.lost,
        "digests": " ".join(digest for _, digest in sorted(ends)),
    }


def recovery(job: Job, steps: Steps, death: Death | None, ranks: int) -> dict[str, object]:
    """Returns the cells that tell what followed a death; empty ones where nothing did.

    Args:
        job: that has ended.
        steps: of it.
        death: in it, if there was one.
        ranks: that do the next step.
    """
    cells: dict[str, object] = dict.fromkeys(
        ("seconds", "detection_s", "generation_s", "copied_bytes"), ""
    )
    if death is None:
        return cells
    cells["seconds"] = round((steps.next_after(death, ranks) - death.begin_ns) / NS, 3)
    lost, copies = job.when("is lost|continues without it"), job.when("this host is new in the job")
    if lost is not None:
        cells["detection_s"] = round((lost - death.begin_ns) / NS, 3)
    if lost is not None and copies is not None:
        cells["generation_s"] = round((copies - lost) / NS, 3)
        [(number, unit)] = job.found(r"it copies ([\d.]+) (\w+) from")
        cells["copied_bytes"] = round(float(number) * UNITS[unit])
    return cells


def parts(rows: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Returns what the recovery from a host's death should take by its parts, in seconds.

    Each part is measured in jobs in which only that had to be done: new agents where an agent
    died, another worker where a worker died; both without the step that follows.
    """

    def median(kind: str, name: str) -> float:
        return statistics.median(float(str(row[name])) for row in rows if row["kind"] == kind)

    step = median("none", "step_s")
    copied = median("host", "copied_bytes") + median("host", "state_bytes")
    return {
        "detection": median("host", "detection_s"),
        "generation": median("agent", "seconds") - step,
        "start of a worker": median("worker", "seconds") - step,
        "bytes / rate": copied / RATE_BYTES,
        "the step": step,
    }


def plot(rows: Sequence[Mapping[str, object]], sum_of: Mapping[str, float]) -> Figure:
    """Draws the parts as a stack beside what recoveries took."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    bottom = 0.0
    for (name, seconds), colour in zip(
        sum_of.items(), ("#999999", "#0072B2", "#009E73", "#E69F00", "#CC79A7"), strict=True
    ):
        axes.bar(0, seconds, 0.6, bottom=bottom, color=colour, label=name)
        bottom += seconds
    kinds = [kind for kind in KINDS[1:] if any(row["kind"] == kind for row in rows)]
    for place, kind in enumerate(kinds, 1):
        own = [float(str(row["seconds"])) for row in rows if row["kind"] == kind]
        axes.bar(place, statistics.median(own), 0.6, color="#56B4E9")
        axes.plot([place] * len(own), own, "k.", markersize=5)
    axes.set_xticks(range(len(kinds) + 1), ["host:\nsum of parts", *kinds])
    axes.set_ylabel("seconds from the death to the next step")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Returns medians and spread as a Markdown table."""
    lines = [
        "| died | seconds to the next step | detection | steps lost | ends as undisturbed |",
        "|---|---|---|---|---|",
    ]
    undisturbed = {str(row["digests"]) for row in rows if row["kind"] == "none"}
    for kind in KINDS[1:]:
        own = [row for row in rows if row["kind"] == kind]
        if not own:
            continue
        cells = []
        for name in ("seconds", "detection_s"):
            known = [float(str(row[name])) for row in own if row[name] != ""]
            spread = f"{min(known):.2f} to {max(known):.2f}" if known else ""
            cells.append(f"{statistics.median(known):.2f} ({spread})" if known else "")
        lost = sorted({str(row["steps_lost"]) for row in own})
        same = sum(str(row["digests"]) in undisturbed for row in own)
        end = "" if kind in ("shrink", "in place") else f"{same} of {len(own)}"
        lines.append(f"| {kind} | {' | '.join(cells)} | {', '.join(lost)} | {end} |")
    return "\n".join(lines)


def main() -> int:
    """Measures, the kinds taking turns; writes results.csv and plot.png, prints tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=4)
    parser.add_argument("--width", type=count, default=3536, help="3536: 25 million parameters")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    add_output(parser, HERE)
    options = parser.parse_args()
    check_environment()
    log = ROOT / "out" / "lost_host.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("")
    rows: list[dict[str, object]] = []
    for repeat in range(options.repeats):
        for kind in options.kinds if repeat % 2 == 0 else reversed(options.kinds):
            rows.append(measure(kind, repeat, options.width, log))
            print(rows[-1], flush=True)
            write_csv(options.output / "results.csv", rows)
    print(table(rows))
    if {row["kind"] for row in rows} >= {"none", "worker", "agent", "host"}:
        sum_of = parts(rows)
        total = sum(sum_of.values())
        print(" + ".join(f"{name} {seconds:.2f}" for name, seconds in sum_of.items()), end=" = ")
        took = [float(str(row["seconds"])) for row in rows if row["kind"] == "host"]
        print(f"{total:.2f} s; took {statistics.median(took):.2f} s, ", end="")
        print(f"{statistics.median(took) / total:.2f} of it")
        plot(rows, sum_of).savefig(options.output / "plot.png", dpi=150)
    return 0


if __name__ == "__main__":
    end_with(main)
