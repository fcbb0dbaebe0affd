"""Kills agents, mpirun, Hydra's proxies and workers at random, and sees whether any sum is wrong.

`make agentsoak MINUTES=10` runs this. A job is tests/jobs/scripts/sums_script.py, whose workers
check the result of every op: 8 ranks on a cluster of three nodes (docs/cluster.md), or 4 on this
host with --one-node. It ends with a line for what was survived; SEED repeats the draw.
"""

import argparse
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

from soak_processes import MARK, strike

from hvd_ft.members.hosts import host_list, parse_placement

ROOT = Path(__file__).resolve().parent.parent
# Ops, their bytes, snapshots every so many: sums that go round in segments, and gathered ones.
JOBS = [(120, 8_000_000, 5), (10_000, 16_000, 100)]
KILLS = 6  # in a job
LIMIT_SECONDS = 300.0  # for a job: a longer one hangs
# Kinds of processes that are killed together, and how often.
KINDS = {
    ("agent",): 4,
    ("agent", "agent"): 1,
    ("mpirun",): 2,
    ("proxy",): 1,
    ("agent", "worker"): 2,
    ("worker",): 1,
}


def main() -> int:
    """Runs jobs until the time is over; returns 1 when one did not end well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--one-node", action="store_true", help="without a cluster")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    survived: Counter[str] = Counter()
    end, jobs = time.monotonic() + 60 * options.minutes, 0
    cluster = None if options.one_node else f"soak-{uuid.uuid4().hex[:6]}"
    hvdft = [sys.executable, "-m", "hvd_ft.cli"]
    if cluster:
        subprocess.run([*hvdft, "cluster", "up", "--name", cluster, "-n", "3"], check=True)
    try:
        while time.monotonic() < end:
            kills, problem = run_job(cluster, chance)
            if problem:
                print(f"job {jobs}: {problem}; after {', '.join(kills)}")
                return 1
            jobs += 1
            survived.update(kills)
    finally:
        if cluster:
            subprocess.run([*hvdft, "cluster", "down", "--name", cluster], check=True)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(survived.items()))
    print(f"{jobs} jobs, {survived.total()} kills survived: {counts}")
    return 0


def run_job(cluster: str | None, chance: random.Random) -> tuple[list[str], str]:
    """Runs a job; returns what was killed, and what went wrong or ""."""
    placement = chance.choice(["4-2-2", "4-3-1"]) if cluster else "4"
    size = sum(map(int, placement.split("-")))
    hvdft = [sys.executable, "-m", "hvd_ft.cli"]
    flags = ["-H", host_list(parse_placement(placement))] if cluster else []
    before = [*hvdft, "cluster", "run", "--name", cluster, "--"] if cluster else []
    script = [sys.executable, str(ROOT / "tests" / "jobs" / "scripts" / "sums_script.py")]
    numbers = map(str, chance.choice(JOBS))
    mark = uuid.uuid4().hex
    job = subprocess.Popen(
        [*before, *hvdft, "run", "--no-prefix", "-np", str(size), *flags, *script, *numbers],
        env={**os.environ, MARK: mark, "HOROVOD_FT_MAX_FAILURES": "1000"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert job.stdout
    seen = []
    for line in job.stdout:
        seen.append(line)
        if " is running" in line:
            break
    kills: list[str] = []
    begun = time.monotonic()
    while job.poll() is None and len(kills) < KILLS:
        time.sleep(chance.uniform(0, 4))  # to strike at any moment
        kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
        if strike(list(kind), mark, chance):
            kills.append(" and ".join(kind))
    try:
        rest, _ = job.communicate(timeout=LIMIT_SECONDS - (time.monotonic() - begun))
    except subprocess.TimeoutExpired:
        return kills, f"hangs; its launcher is process {job.pid}"
    output = "".join(seen) + rest
    # A worker that is killed after reporting its sums reports them again.
    told = [line.split() for line in output.splitlines() if line.startswith("SUMS ")]
    ranks, sums = {words[1] for words in told}, {words[3] for words in told}
    well = job.returncode == 0 and len(ranks) == size and len(sums) == 1
    return kills, "" if well else f"code {job.returncode}\n{output}"


if __name__ == "__main__":
    sys.exit(main())
