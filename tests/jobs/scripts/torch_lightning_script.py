"""Trains with Lightning, in the style that the first argument names; prints digests of the result.

The second argument is "snapshots" or "none".
"""

import hashlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from noisy_data import Noisy, data, pause
from torch.utils.data import DataLoader, IterableDataset
from torchmetrics import MeanMetric

import hvd_ft.torch as hvd
import hvd_ft.torch.lightning as hvd_lightning

STYLE, MODE, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
EPOCHS = 3
warnings.filterwarnings("ignore")


class Endless(IterableDataset):
    """Has no length that Lightning could know."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(24):
            yield torch.randn(6), torch.tensor((number + hvd.rank()) % 2)


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.3)
        )
        self.head = torch.nn.Linear(8, 2)
        self.measured = MeanMetric()
        self.outputs: list[torch.Tensor] = []
        self.sums: list[float] = []
        self.automatic_optimization = STYLE != "manual"

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        pause(self.trainer.global_step)
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self(inputs), labels)
        self.outputs.append(loss.detach())
        self.measured(loss.detach())
        self.log("measured", self.measured, on_epoch=True)
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def on_train_epoch_end(self) -> None:
        self.sums.append(float(torch.stack(self.outputs).sum()))
        self.outputs.clear()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self(inputs), labels)
        self.log("val_loss", loss, sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), 0.01)
        if STYLE == "plateau":
            scheduler: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "monitor": "loss_epoch"},
            }
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=100)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def loaders(ranks: int) -> tuple[DataLoader, DataLoader]:
    """Each rank has six batches of each epoch."""
    if STYLE == "iterable":
        return DataLoader(Endless(), 4), DataLoader(data(16, 2), 4)
    workers = {"num_workers": 2, "persistent_workers": True} if STYLE == "workers" else {}
    train = DataLoader(Noisy(*data(24 * ranks, 1).tensors), 4, shuffle=True, **workers)
    return train, DataLoader(data(16, 2), 4)


def trainer_of_style() -> pl.Trainer:
    callbacks: list[Any] = [hvd_lightning.Snapshots(snapshot_steps=1)] if MODE != "none" else []
    callbacks.append(ModelCheckpoint(FOLDER / "checkpoints", monitor="val_loss", save_top_k=2))
    if STYLE == "early":
        callbacks.append(EarlyStopping("val_loss", patience=1, min_delta=0.05))
    more: dict[str, Any] = {"val_check_interval": 0.5}
    if STYLE == "iterable":
        more = {}
    if STYLE == "accumulate":
        more |= {"accumulate_grad_batches": 4, "gradient_clip_val": 0.5}
    if STYLE == "rare":
        more = {"check_val_every_n_epoch": 2, "limit_train_batches": 5, "num_sanity_val_steps": 0}
    return pl.Trainer(
        strategy=DDPStrategy(process_group_backend="hvd_ft"),
        accelerator="cpu",
        max_epochs=6 if STYLE == "early" else EPOCHS,
        callbacks=callbacks,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=FOLDER,
        **more,
    )


def digest(*values: Any) -> str:
    found = hashlib.sha256()
    for value in values:
        is_tensor = isinstance(value, torch.Tensor)
        found.update(value.detach().numpy().tobytes() if is_tensor else repr(value).encode())
    return found.hexdigest()[:16]


def main() -> None:
    pl.seed_everything(3)
    model, trainer = Model(), trainer_of_style()
    torch.manual_seed(trainer.global_rank)
    np.random.seed(trainer.global_rank)
    trainer.fit(model, *loaders(trainer.world_size))
    if STYLE == "twice":
        trainer.fit_loop.max_epochs = 2 * EPOCHS
        trainer.fit(model, *loaders(trainer.world_size))
    optimizer = trainer.optimizers[0]
    states = [value for state in optimizer.state.values() for value in state.values()]
    metrics = sorted((name, float(value)) for name, value in trainer.callback_metrics.items())
    shared = digest(*model.parameters(), *states, optimizer.param_groups[0]["lr"])
    best = {os.path.basename(path) for path in trainer.checkpoint_callback.best_k_models}
    counts = (trainer.global_step, trainer.current_epoch, sorted(best))
    own = digest(metrics, model.sums, counts, torch.get_rng_state(), *model.buffers())
    print(f"COUNTS {counts} {metrics}", file=sys.stderr)
    print(f"RESULT {trainer.global_rank} {hvd.incarnation()} {shared} {own}", flush=True)


if __name__ == "__main__":
    main()
