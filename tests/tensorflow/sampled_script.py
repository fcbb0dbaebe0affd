"""What the tests of `ElasticSampler` share: the data, and ranks whose number changes."""

from collections.abc import Iterator
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from fake_worker import Killed
from keras_script import end_process

from hvd_ft.tensorflow import state as state_module

SAMPLES = 23
X = np.random.default_rng(0).standard_normal((SAMPLES, 3)).astype(np.float32)


class Ranks:
    """The number of ranks, which a test changes, and which of them this process is."""

    rank, size = 0, 2

    def become(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.fixture(autouse=True, name="ranks")
def changing_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    """Stands for Horovod."""
    found = Ranks()
    monkeypatch.setattr(hvd, "rank", lambda: found.rank)
    monkeypatch.setattr(hvd, "size", lambda: found.size)

    def broadcast(variables: list[Any], values: bytes) -> bytes:
        worker = state_module.native.worker()
        if worker is not None:
            worker.collective(f"broadcast {values!r}")
        return values

    monkeypatch.setattr(state_module, "_broadcast", broadcast)
    yield found
    end_process()


def load(indices: Any) -> Any:
    return tf.gather(X, indices), indices


def die() -> None:
    raise Killed
