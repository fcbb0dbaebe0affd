"""Trains on scikit-learn's handwritten digits with Hugging Face Accelerate.

Run it with `hvdft run -np 2 python examples/digits_accelerate.py`; it needs `pip install
accelerate`. The lines that other scripts do not have are marked with `# new`.
"""

import argparse
import hashlib
import json

import numpy as np
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

import hvd_ft.torch as hvd
import hvd_ft.torch.accelerate  # new

BATCH = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    torch.manual_seed(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    digits = load_digits()
    data = train_test_split(digits.data.astype(np.float32) / 16, digits.target, random_state=1)
    train_x, test_x, train_y, test_y = map(torch.from_numpy, data)
    loader = DataLoader(TensorDataset(train_x, train_y), BATCH, shuffle=True)
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), 0.006)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    measure = torch.nn.CrossEntropyLoss()

    state = hvd_ft.torch.accelerate.State(accelerator, model=model, optimizer=optimizer)  # new
    state.sync()  # new
    while state.epoch < options.epochs:  # new: was for epoch in range(options.epochs)
        for images, labels in state.batches(loader):  # new: was `in loader`
            with accelerator.accumulate(model):
                accelerator.backward(measure(model(images), labels))
                optimizer.step()
                optimizer.zero_grad()
    state.finish()  # new

    with torch.no_grad():
        accuracy = float((model(test_x).argmax(1) == test_y).float().mean())
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    result = {
        "rank": accelerator.process_index,
        "incarnation": hvd.incarnation(),
        "accuracy": round(accuracy, 4),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
