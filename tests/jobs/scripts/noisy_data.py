"""What scripts of PyTorch's clients share.

Data that draws random numbers with each sample, as augmentation does, and a place where a job waits
for its test.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

import hvd_ft.torch as hvd
from hvd_ft.system.await_file import await_file


class Noisy(TensorDataset):
    """Adds noise to each sample."""

    def __getitem__(self, index: int) -> Any:
        inputs, label = super().__getitem__(index)
        return inputs + 0.01 * torch.randn(6), label


def data(samples: int, seed: int) -> TensorDataset:
    """Returns so many samples of two classes, without noise."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 6, generator=generator)
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def pause(steps: int) -> None:
    """Has rank 0 wait after 8 steps for the file AWAIT, if there is such a variable."""
    if steps == 8 and hvd.rank() == 0 and (awaited := os.environ.get("AWAIT")):
        print(f"waiting for the test after {steps} steps", file=sys.stderr, flush=True)
        assert await_file(Path(awaited), 200)
