"""Sums arrays without a framework, checks every sum, then idles and counts its leader's naps."""

import os
import sys
import time

import numpy as np

from hvd_ft.native import Observer, logs
from hvd_ft.native.sums import Sums

IDLE_SECONDS = 1.0


def main() -> None:
    sums = Sums()
    for size in map(int, sys.argv[1].split(",")):
        pattern = np.resize(np.arange(1, 1000, dtype=np.float32), size // 4)
        array = pattern * np.float32(sums.rank + 1)
        sums.sum(array)
        assert np.array_equal(array, pattern * np.float32(sums.size * (sums.size + 1) // 2)), size
        sums.cut()
    observer = Observer(os.environ["HOROVOD_FT_DIR"])
    before = logs.traffic(observer).naps
    time.sleep(IDLE_SECONDS)  # what is counted takes time
    print(f"NAPS {sums.rank} {logs.traffic(observer).naps - before}", flush=True)
    sums.of_each(0)
    sums.leave()


if __name__ == "__main__":
    main()
