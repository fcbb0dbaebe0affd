"""Trains on scikit-learn's handwritten digits with Lightning's Trainer.

Run it with `hvdft run -np 2 python examples/digits_lightning.py`; it needs `pip install lightning`.
The lines that a script for the backend Gloo does not have are marked with `# new`.
"""

import argparse
import hashlib
import json
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.strategies import DDPStrategy
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

import hvd_ft.torch as hvd
import hvd_ft.torch.lightning  # new

BATCH = 20


class Digits(pl.LightningModule):
    """Two layers, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2)]
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 10))
        self.measure = torch.nn.CrossEntropyLoss()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        images, labels = batch
        return self.measure(self.model(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.003)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    pl.seed_everything(1)
    digits = load_digits()
    data = train_test_split(digits.data.astype(np.float32) / 16, digits.target, random_state=1)
    train_x, test_x, train_y, test_y = map(torch.from_numpy, data)
    loader = DataLoader(TensorDataset(train_x, train_y), BATCH, shuffle=True)
    trainer = pl.Trainer(
        strategy=DDPStrategy(process_group_backend="hvd_ft"),  # new: was strategy="ddp"
        accelerator="cpu",
        callbacks=[hvd_ft.torch.lightning.Snapshots()],  # new
        max_epochs=options.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    module = Digits()
    trainer.fit(module, loader)

    module.eval()
    with torch.no_grad():
        accuracy = float((module.model(test_x).argmax(1) == test_y).float().mean())
    weights = b"".join(each.detach().numpy().tobytes() for each in module.parameters())
    result = {
        "rank": trainer.global_rank,
        "incarnation": hvd.incarnation(),
        "accuracy": round(accuracy, 4),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
