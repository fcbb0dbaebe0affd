"""Loads tests/pytorch/fake_device.cc: a device that stands for a GPU."""

from types import ModuleType

import torch

NAME = "fake"


def load(library: str) -> torch.device:
    """Makes the device known.

    Args:
        library: the compiled file.
    """
    torch.ops.load_library(library)
    torch.utils.rename_privateuse1_backend(NAME)
    module = ModuleType(NAME)
    module.is_available = lambda: False  # PyTorch's own code has nothing to ask it
    torch._register_device_module(NAME, module)
    return torch.device(NAME, 0)
