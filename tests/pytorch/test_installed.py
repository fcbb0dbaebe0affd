"""Whether PyTorch and its clients are there to be tested; else one line says what was left out."""

import pytest
from conftest import CLIENTS_ARE_THERE, ROOT, TORCH_IS_THERE, needs_clients, needs_torch


def test_pytorch_is_installed() -> None:
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if needs_torch(path)]
    if not TORCH_IS_THERE:
        pytest.skip(
            f"{len(files)} files of tests need PyTorch, which is not installed; "
            "run: make setup TORCH=1"
        )
    import torch

    assert torch.__version__


def test_lightning_and_accelerate_are_installed() -> None:
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if needs_clients(path)]
    if not CLIENTS_ARE_THERE:
        pytest.skip(
            f"{len(files)} files of tests need Lightning and Accelerate, which are not installed; "
            "run: make clients"
        )
    import accelerate
    import lightning

    assert accelerate.__version__
    assert lightning.__version__
