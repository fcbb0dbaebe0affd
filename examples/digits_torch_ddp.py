"""Trains on scikit-learn's handwritten digits with PyTorch's DistributedDataParallel.

Run it with `hvdft run -np 2 python examples/digits_torch_ddp.py`. The lines that a script for
the backend Gloo does not have are marked with `# new`.
"""

import argparse
import hashlib
import json

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hvd_ft.torch as hvd  # new
import hvd_ft.torch.distributed  # noqa: F401 (new: makes the backend known)

BATCH = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    dist.init_process_group("hvd_ft")  # new: was "gloo"
    torch.manual_seed(1)
    digits = load_digits()
    data = train_test_split(digits.data.astype(np.float32) / 16, digits.target, random_state=1)
    train_x, test_x, train_y, test_y = map(torch.from_numpy, data)
    samples = TensorDataset(train_x, train_y)
    sampler = DistributedSampler(samples, seed=1, drop_last=True)
    loader = DataLoader(samples, BATCH, sampler=sampler, drop_last=True)

    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    measure = torch.nn.CrossEntropyLoss()

    state = hvd.State(model=model, optimizer=optimizer, loss=0.0, losses=[])  # new
    state.sync()  # new
    while state.epoch < options.epochs:
        sampler.set_epoch(state.epoch)
        for images, labels in state.batches(loader):  # new: was `in loader`
            optimizer.zero_grad()
            loss = measure(model(images), labels)
            loss.backward()
            optimizer.step()
            state.loss = float(loss.detach())  # new: what is used behind the loop is in the state
        mean = torch.tensor(state.loss)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        state.losses.append(float(mean))
    state.finish()  # new

    with torch.no_grad():
        accuracy = float((model(test_x).argmax(1) == test_y).float().mean())
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    result = {
        "rank": dist.get_rank(),
        "incarnation": hvd.incarnation(),
        "losses": state.losses,
        "accuracy": round(accuracy, 4),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
