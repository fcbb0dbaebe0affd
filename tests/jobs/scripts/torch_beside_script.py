"""Computes beside an allreduce: rank 1 hands over late in each step, at no cost for the others.

Ends when the report names a slow rank, or after --steps.
"""

import argparse
import time
from pathlib import Path

import torch

import hvd_ft.torch as hvd

BESIDE, STEP = 0.02, 0.04  # seconds of computing: by rank 1 before it hands over, and of all


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", required=True, help="a report")
    parser.add_argument("--steps", type=int, required=True, help="at most")
    options = parser.parse_args()
    hvd.init()
    before = BESIDE if hvd.rank() == 1 else 0.0
    state = hvd.State(sum=torch.zeros(1000))
    state.sync()
    while state.batch < options.steps:
        named = '"SLOW"' in Path(options.until).read_text()
        time.sleep(before)
        handle = hvd.allreduce_async(torch.ones(50_000), name="gradient")
        over = hvd.allreduce_async(torch.tensor(float(named)), name="over", op=hvd.Max)
        time.sleep(STEP - before)
        hvd.synchronize(handle)
        if hvd.synchronize(over) > 0:
            break
        state.batch += 1
        state.commit()


if __name__ == "__main__":
    main()
