"""Measures how long a job of 8 ranks on 3 nodes stands still when one of its agents is killed.

Makes the nodes out of namespaces, so it needs root. README.md in this folder tells what is
measured; `python -m experiments.recovery_time.agent --help` the flags.
"""

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path

from experiments.common import (
    HVDFT,
    ROOT,
    add_output,
    cluster_up,
    count,
    end_with,
    inside,
    write_csv,
)
from experiments.recovery_time.run import HERE, read_times, run_script
from hvd_ft.members.hosts import host_list, parse_placement

RANKS = 8
STEP = 30


def standstill(cluster: str, placement: str, victim: int, log: Path) -> float:
    """Returns the longest time that any rank needed from one step to the next, in seconds.

    Args:
        cluster: on which the job runs.
        placement: such as 4-2-2.
        victim: rank whose agent is killed, soon after its worker has done step 30.
        log: takes the output.

    Raises:
        HvdFtError: the job failed.
    """
    hosts = host_list(parse_placement(placement))
    drill = ["--inject", f"agent={victim},step={STEP}"]
    job = [*HVDFT, "run", "--no-live", "-np", str(RANKS), "-H", hosts, *drill]
    with tempfile.TemporaryDirectory() as times:
        run_script([*inside(cluster), *job], [], times, log)
        longest = 0
        for rank in range(RANKS):
            done = [ns for (_, step), ns in sorted(read_times(times, rank).items()) if step > 1]
            longest = max(longest, *(b - a for a, b in itertools.pairwise(done)))
    return longest / 1e9


def main() -> int:
    """Measures both placements in turn; writes agent.csv, prints medians and spread."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=4, help="of each placement")
    add_output(parser, HERE)
    options = parser.parse_args()
    log = ROOT / "out" / "agent_death.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("")
    rows: list[dict[str, object]] = []
    with cluster_up("agent", 3, "1gbit") as cluster:
        for repeat in range(options.repeats):
            for placement in ("4-2-2", "4-3-1"):
                victim = (3 * repeat + 1) % RANKS
                seconds = standstill(cluster, placement, victim, log)
                rows.append(
                    {"placement": placement, "victim": victim, "seconds": round(seconds, 3)}
                )
                print(f"{placement} agent {victim}: {seconds:.2f} s", flush=True)
                write_csv(options.output / "agent.csv", rows)
    for placement in ("4-2-2", "4-3-1"):
        own = [float(str(row["seconds"])) for row in rows if row["placement"] == placement]
        print(
            f"{placement}: {statistics.median(own):.2f} s ({min(own):.2f} to {max(own):.2f}) "
            f"of {len(own)}"
        )
    return 0


if __name__ == "__main__":
    end_with(main)
