"""Trains on scikit-learn's handwritten digits with PyTorch and Horovod's DistributedOptimizer.

Run it with `hvdft run -np 2 python examples/digits_torch.py`; without an agent it is an ordinary
Horovod script. The lines that stock Horovod does not have are marked with `# new`.
"""

import argparse
import hashlib
import json

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hvd_ft.torch as hvd  # new: was horovod.torch

BATCH = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    digits = load_digits()
    data = train_test_split(digits.data.astype(np.float32) / 16, digits.target, random_state=1)
    train_x, test_x, train_y, test_y = map(torch.from_numpy, data)
    own = DistributedSampler(range(len(train_x)), hvd.size(), hvd.rank(), seed=1, drop_last=True)
    loader = DataLoader(TensorDataset(train_x, train_y), BATCH, sampler=own, drop_last=True)

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    measure = torch.nn.CrossEntropyLoss()

    kept = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    state = hvd.State(**kept, loss_sum=0.0, losses=[])  # new
    state.sync()  # new: was hvd.broadcast_parameters and hvd.broadcast_optimizer_state
    while state.epoch < options.epochs:
        own.set_epoch(state.epoch)
        state.loss_sum = 0.0  # what is used behind the loop is in the state
        for images, labels in state.batches(loader):  # new: was `in loader`
            optimizer.zero_grad()
            loss = measure(model(images), labels)
            loss.backward()
            optimizer.step()
            state.loss_sum += float(loss.detach())
        mean = hvd.allreduce(torch.tensor(state.loss_sum / len(loader)), name="loss")
        state.losses.append(float(mean))
        scheduler.step()
    state.finish()  # new

    accuracy = float((model(test_x).argmax(1) == test_y).float().mean())
    weights = b"".join(each.numpy().tobytes() for each in model.state_dict().values())
    result = {
        "rank": hvd.rank(),
        "incarnation": hvd.incarnation(),
        "losses": state.losses,
        "accuracy": round(accuracy, 4),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
