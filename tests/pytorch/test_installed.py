"""Whether PyTorch is there to be tested: where it is not, this one line says what was left out."""

import pytest
from conftest import ROOT, TORCH_IS_THERE, needs_torch


def test_pytorch_is_installed() -> None:
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if needs_torch(path)]
    if not TORCH_IS_THERE:
        pytest.skip(
            f"{len(files)} files of tests need PyTorch, which is not installed; "
            "run: make setup TORCH=1"
        )
    import torch

    assert torch.__version__
