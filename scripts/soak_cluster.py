"""Destroys hosts, links and processes of a cluster at random, and compares the weights.

`make soak-cluster MINUTES=10` runs this. Each job trains a script of tests/jobs/scripts on four
ranks of three nodes, with spare hosts (docs/cluster.md): TensorFlow's, or PyTorch's in turn.
Workers, agents and shims are killed, links cut for moments, connections reset, nodes killed as by a
power failure. Weights, optimizer and statistics of every rank have to be those of an undisturbed
job, and no process may be left. It ends with a table; SEED repeats the draw.
"""

import argparse
import contextlib
import os
import random
import re
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.table import Table
from soak_processes import MARK, processes_of, strike

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "tests" / "jobs" / "scripts"
Work = tuple[str, ...]
# Of each framework, with arguments: so many epochs that there is time for all strikes.
WORK: dict[str, list[Work]] = {
    "tensorflow": [("lost_host_script.py", "6")],
    "torch": [("torch_lost_host_script.py", style, "30") for style in ("loop", "ddp")],
}
HVDFT = [sys.executable, "-m", "hvd_ft.cli"]
HOSTS = ["n1:2", "n0:1", "n2:1"]  # n0 has the launcher, and is not killed
SPARES = ["n3:2", "n4:2"]
RANKS = 4
STRIKES = 6  # a job
SILENT_SECONDS = 200.0  # a job that says nothing for longer hangs; it says every tenth step
CUT_SECONDS = 2.0  # at most; TCP may stay silent for as long again, and the host be lost
KINDS = {"node": 3, "worker": 3, "agent": 2, "shim": 1, "agent and worker": 1, "cut": 2, "reset": 1}
# What a job says of each recovery.
REPLACED = re.compile(r"host (\w+) is lost; .* on (\w+) \(epoch")
RECOVERIES = {
    "hosts replaced": REPLACED,
    "new generations of agents": re.compile(r"; starting generation \d+ of its agents"),
    "workers back": re.compile(r"rank \d+ is back after"),
}


@dataclass
class Tally:
    """What has happened to all jobs."""

    jobs: int = 0
    wrong: int = 0
    hangs: int = 0
    broken: int = 0
    orphans: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    recovered: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> bool:
        return bool(self.wrong or self.hangs or self.broken or self.orphans)

    def table(self) -> Table:
        """Lays it out."""
        table = Table(title="Soak of a cluster", title_justify="left", show_header=False)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.struck.items()))
        table.add_row("jobs", str(self.jobs))
        table.add_row("faults", f"{self.struck.total()} ({kinds})")
        for kind in RECOVERIES:
            table.add_row(kind, str(self.recovered[kind]))
        table.add_row("wrong weights", str(self.wrong))
        table.add_row("hangs", str(self.hangs))
        table.add_row("jobs ended with an error", str(self.broken))
        table.add_row("processes left", str(self.orphans))
        return table


class RunningJob:
    """A job, with all that it has said so far.

    Args:
        command: that starts it.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.mark = uuid.uuid4().hex
        self.output: list[str] = []
        self._heard = time.monotonic()  # the latest line
        self.process = subprocess.Popen(
            command,
            env={**os.environ, MARK: self.mark, "HOROVOD_FT_MAX_FAILURES": "1000"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._trains = threading.Event()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.output.append(line)
            self._heard = time.monotonic()
            if "10 steps are done" in line:
                self._trains.set()
        self._trains.set()

    def await_training(self, seconds: float) -> None:
        """Waits until it trains, or has ended."""
        self._trains.wait(seconds)

    @property
    def text(self) -> str:
        return "".join(self.output)

    @property
    def silent_seconds(self) -> float:
        """How long it has said nothing."""
        return time.monotonic() - self._heard

    def end(self, seconds: float) -> bool:
        """Waits for its end; False if it has not come, and nothing was said for `seconds`."""
        while self.process.poll() is None:
            if self.silent_seconds >= seconds:
                return False
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(max(0.0, seconds - self.silent_seconds))
        self._reader.join(10)
        return True

    @property
    def ends(self) -> list[str]:
        """What every rank ended with; a rank that was killed at its end says it twice."""
        return sorted({line for line in self.output if line.startswith("END ")})


def training_on(cluster: str, work: Work) -> RunningJob:
    """Starts a job of a script on a cluster."""
    hosts, spares = ",".join(HOSTS), ",".join(SPARES)
    job = ["run", "--no-prefix", "-np", str(RANKS), "-H", hosts, "--spare-hosts", spares]
    enter = [*HVDFT, "cluster", "run", "--name", cluster, "--"]
    script, *words = work
    python = [sys.executable, "-W", "ignore"]
    return RunningJob([*enter, *HVDFT, *job, *python, str(SCRIPTS / script), *words])


@contextlib.contextmanager
def cluster_up() -> Iterator[str]:
    """A cluster of five nodes."""
    name = f"soak-{uuid.uuid4().hex[:6]}"
    nodes = str(len(HOSTS) + len(SPARES))
    command(name, "up", "-n", nodes, "--rate", "1gbit")
    try:
        yield name
    finally:
        command(name, "down")


def command(cluster: str, *words: str) -> None:
    """Runs `hvdft cluster`."""
    name = ["--name", cluster]
    subprocess.run(
        [*HVDFT, "cluster", words[0], *name, *words[1:]], check=True, stdout=subprocess.DEVNULL
    )


class Faults:
    """Draws and inflicts what befalls one job.

    Args:
        job: it.
        cluster: its cluster's name.
        chance: the random generator.
    """

    def __init__(self, job: RunningJob, cluster: str, chance: random.Random) -> None:
        self._job = job
        self._cluster = cluster
        self._chance = chance
        self._killed = ["n0"]  # nodes, and the one that is spared
        self.struck: list[str] = []

    def strike(self) -> None:
        """Strikes once, if there is something to be struck now."""
        kind = self._chance.choices(list(KINDS), list(KINDS.values()))[0]
        if self._inflict(kind):
            self.struck.append(kind)

    def _inflict(self, kind: str) -> bool:
        if kind not in ("node", "cut", "reset"):
            return strike(kind.split(" and "), self._job.mark, self._chance)
        node = self._chance.choice(self._members())
        if node in self._killed or (kind != "reset" and not self._all_back()):
            return False
        if kind == "node":
            self._killed.append(node)
            command(self._cluster, "kill", node)
        elif kind == "cut":
            command(self._cluster, "cut", node)
            time.sleep(self._chance.uniform(0.1, CUT_SECONDS))
            command(self._cluster, "heal", node)
        else:
            command(self._cluster, "reset", node)
        return True

    def _members(self) -> list[str]:
        """The hosts of the job by now."""
        hosts = [host.partition(":")[0] for host in HOSTS]
        for lost, spare in REPLACED.findall(self._job.text):
            hosts[hosts.index(lost)] = spare
        return hosts

    def _all_back(self) -> bool:
        """Whether a node may be lost: its buddy must have what only its ranks have."""
        text = self._job.text
        replaced = len(REPLACED.findall(text))
        if replaced < len(self._killed) - 1 or len(self._killed) > len(SPARES):
            return False
        return text.rfind("is back after") >= text.rfind("is lost; ")


def run_job(
    cluster: str, work: Work, chance: random.Random, strikes: int
) -> tuple[RunningJob, list[str], bool]:
    """Runs a job; returns it, what befell it, and whether it ended."""
    job = training_on(cluster, work)
    faults = Faults(job, cluster, chance)
    job.await_training(SILENT_SECONDS)
    while job.process.poll() is None and len(faults.struck) < strikes:
        time.sleep(chance.uniform(0, 5))  # to strike at any moment
        if job.silent_seconds > SILENT_SECONDS:
            break
        faults.strike()
    return job, faults.struck, job.end(SILENT_SECONDS)


def main() -> int:
    """Runs jobs until the time is over; returns 1 when one did not end well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--framework", choices=sorted(WORK), default="tensorflow")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chance, tally, console = random.Random(options.seed), Tally(), Console()
    undisturbed: dict[Work, list[str]] = {}
    for work in WORK[options.framework]:
        with cluster_up() as cluster:
            job, _, _ = run_job(cluster, work, chance, 0)
        undisturbed[work] = job.ends
        assert len(job.ends) == RANKS, job.text
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end and not tally.failed:
        work = WORK[options.framework][tally.jobs % len(undisturbed)]
        with cluster_up() as cluster:
            job, struck, ended = run_job(cluster, work, chance, STRIKES)
            left = list(chain.from_iterable(processes_of(job.mark).values()))
            tally.jobs += 1
            tally.struck.update(struck)
            for kind, said in RECOVERIES.items():
                tally.recovered[kind] += len(said.findall(job.text))
            tally.hangs += not ended
            tally.broken += ended and job.process.returncode != 0
            tally.wrong += job.process.returncode == 0 and job.ends != undisturbed[work]
            tally.orphans += len(left) if ended else 0
            print(f"job {tally.jobs} ({' '.join(work)}): {', '.join(struck)}", flush=True)
            if tally.failed:
                print(f"after {', '.join(struck)}:\n{job.text}\nleft: {left}")
    console.print(tally.table())
    return int(tally.failed)


if __name__ == "__main__":
    sys.exit(main())
