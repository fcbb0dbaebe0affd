"""What every rank of the scale experiment does: sums, then sleeps, without TensorFlow.

Each rank writes a file with what it has counted in between, of itself, its agent and its node.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import psutil

from hvd_ft import native
from hvd_ft.native import abi, logs
from hvd_ft.native.sums import Sums

WARM_UPS = 20
SETTLE_SECONDS = 5.0  # the leader's naps get longer while nothing happens


def wakeups(process: psutil.Process) -> int:
    """Returns how often the threads of a process have waited and gone on."""
    total = 0
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        lines = (thread / "status").read_text().splitlines()
        [switches] = [line for line in lines if line.startswith("voluntary_ctxt_switches")]
        total += int(switches.split()[1])
    return total


class Counters:
    """The counters of this rank, its agent, and, on a node's first rank, its node."""

    def __init__(self) -> None:
        self.shim = psutil.Process().parent()
        assert self.shim
        self.agent = self.shim.parent()
        self.observer = native.Observer(os.environ["HOROVOD_FT_DIR"])
        worker = native.worker()
        assert worker
        self.leads = worker.node_ranks()[0] == worker.rank

    def read(self) -> dict[str, float]:
        """Returns all counters, which only grow."""
        assert self.agent and self.shim
        traffic = logs.traffic(self.observer)
        node = vars(traffic) if self.leads else dict.fromkeys(vars(traffic), 0)
        processes = [self.agent, self.shim]
        return {
            **node,
            "agent_wakeups": sum(map(wakeups, processes)),
            "agent_cpu_us": sum(1e6 * sum(p.cpu_times()[:2]) for p in processes),
            "worker_wakeups": wakeups(psutil.Process()),
        }


def cpu_seconds(process: psutil.Process) -> float:
    """Returns the CPU time that a process has used."""
    return float(sum(process.cpu_times()[:2]))


def start_of(counters: Counters, entered: float, first_op: float) -> dict[str, float]:
    """Returns when this rank's processes began, and what CPU time they had used by the first op.

    Args:
        entered: When the worker was attached to the job; as all times seconds of the clock.
        first_op: When its first op was complete.
    """
    agent, shim, worker = counters.agent, counters.shim, psutil.Process()
    assert agent and shim
    return {
        "agent_at": agent.create_time(),
        "worker_at": worker.create_time(),
        "entered_at": entered,
        "first_op_at": first_op,
        "agent_cpu_s": cpu_seconds(agent),
        "shim_cpu_s": cpu_seconds(shim),
        "worker_cpu_s": cpu_seconds(worker),
    }


def difference(after: dict[str, float], before: dict[str, float], share: float) -> dict[str, float]:
    """Returns what has been counted in between, for one of `share`."""
    return {name: (after[name] - before[name]) / share for name in after}


def arena_bytes() -> int:
    """Returns the memory of the node's arena, without those of its ranks."""
    return Path(os.environ["HOROVOD_FT_DIR"], "node.arena").stat().st_blocks * 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, required=True, help="sums that are counted")
    parser.add_argument("--bytes", type=int, required=True, help="of each")
    parser.add_argument("--idle", type=float, required=True, help="seconds that are counted")
    parser.add_argument("--output", type=Path, required=True, help="folder of the counts")
    options = parser.parse_args()
    worker = Sums()
    entered = time.time()
    array = np.ones(options.bytes // 4, np.float32)
    worker.sum(array)
    first_op = time.time()
    counters = Counters()
    start = start_of(counters, entered, first_op)
    term = int(abi.library().hvdft_worker_term())
    for _ in range(WARM_UPS):
        worker.sum(array)
    before = counters.read()
    for _ in range(options.ops):
        worker.sum(array)
    of_op = difference(counters.read(), before, options.ops)
    time.sleep(SETTLE_SECONDS)
    before = counters.read()
    time.sleep(options.idle)
    of_second = difference(counters.read(), before, options.idle)
    assert counters.agent
    counts = {
        "rank": worker.rank,
        "leads": counters.leads,
        "start": start,
        "term": term,
        "agent_pss": counters.agent.memory_full_info().pss,
        "arena": arena_bytes(),
        "op": of_op,
        "idle": of_second,
    }
    (options.output / f"{worker.rank}.json").write_text(json.dumps(counts))
    worker.sum(array)  # nobody leaves before all have counted
    worker.leave()


if __name__ == "__main__":
    main()
