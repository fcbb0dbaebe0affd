"""A rank of the job that compares allreduces of PyTorch tensors between nodes.

Measures each size by what `hvdft bench allreduce --framework torch` measures it by, and writes its
times into a file of its own: `run.py` takes those of the slowest rank.
"""

import argparse
import json
from pathlib import Path

import torch

from hvd_ft.tools.bench.workers.torch_allreduce import Gloo, Horovod, Measurement

ELEMENT_BYTES = 4  # float32


def main() -> None:
    """Measures all sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notes", type=Path, required=True, help="folder for the ranks' files")
    parser.add_argument("--gloo", action="store_true", help="use Gloo instead of Horovod")
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True, metavar="BYTES")
    options = parser.parse_args()
    torch.set_num_threads(1)  # several ranks share the CPUs
    backend = Gloo("sum", options.notes / "store") if options.gloo else Horovod("sum")
    measurement = Measurement(backend, "float32", "sum", tensors=1)
    answers = {
        size: measurement.answer(
            {"count": size // ELEMENT_BYTES, "warmup": 3, "iterations": options.iterations}
        )
        for size in options.sizes
    }
    (options.notes / f"{backend.rank}.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
