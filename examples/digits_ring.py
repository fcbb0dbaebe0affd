"""Trains on scikit-learn's handwritten digits in numpy, with a ring allreduce made of messages.

Run it with `hvdft run -np 4 python examples/digits_ring.py`. The lines that make a training of one
process one of many, and have it go on when a rank dies, are marked with `# new`.
"""

import argparse
import hashlib
import json

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hvd_ft.tensorflow as hvd  # new: for State, which takes snapshots
from hvd_ft.p2p import ft_recv, ft_send  # new

BATCH = 20


def ring_allreduce(data: np.ndarray) -> None:
    """Sums a contiguous array over all ranks, in place."""
    rank, size = hvd.rank(), hvd.size()
    successor, predecessor = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(data.reshape(-1), size)
    for step in range(size - 1):  # reduce-scatter: a chunk grows on its way round
        ft_send(chunks[(rank - step) % size], successor, tag=step)
        chunks[(rank - step - 1) % size] += ft_recv(None, predecessor, tag=step)
    for step in range(size - 1):  # allgather
        ft_send(chunks[(rank + 1 - step) % size], successor, tag=size + step)
        ft_recv(chunks[(rank - step) % size], predecessor, tag=size + step)


def gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the softmax's cross entropy."""
    scores = np.exp(x @ weights)
    error = scores / scores.sum(axis=1, keepdims=True) - np.eye(10)[y]
    return x.T @ error / len(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    hvd.init()  # new
    digits = load_digits()
    data = train_test_split(digits.data / 16, digits.target, random_state=1)
    train_x, test_x, train_y, test_y = data
    own_x, own_y = (part[hvd.rank() :: hvd.size()] for part in (train_x, train_y))
    steps = len(train_x) // hvd.size() // BATCH

    state = hvd.State(weights=np.zeros((64, 10)))  # new
    state.sync()  # new
    while state.batch < options.epochs * steps:
        order = np.random.default_rng(state.batch // steps).permutation(len(own_x))
        batch = order[state.batch % steps * BATCH :][:BATCH]
        mean = gradient(state.weights, own_x[batch], own_y[batch])
        ring_allreduce(mean)  # new
        state.weights = state.weights - 0.5 * mean / hvd.size()
        state.batch += 1
        state.commit()  # new
    result = {
        "rank": hvd.rank(),
        "incarnation": hvd.incarnation(),
        "steps": state.batch,
        "accuracy": float((np.argmax(test_x @ state.weights, axis=1) == test_y).mean()),
        "weights_sha256": hashlib.sha256(state.weights.tobytes()).hexdigest(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
