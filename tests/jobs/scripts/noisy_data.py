"""Data of PyTorch that draws random numbers with each sample, as augmentation does."""

from typing import Any

import torch
from torch.utils.data import TensorDataset


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
