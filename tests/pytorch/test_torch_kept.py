"""Parts of a State's values: what they are known to be, and generators that data draws from."""

import random
from collections import deque
from typing import Any

import numpy as np
import torch

from hvd_ft.torch.kept import KeptValues
from hvd_ft.torch.packing import pack, unpack
from hvd_ft.torch.rng import Stream
from hvd_ft.torch.tensors import Arrays, made
from hvd_ft.worker.divergence_rule import Kind


def test_gradients_are_a_ranks_own_and_trained_parameters_weights() -> None:
    """Sums of gradients that are not exchanged yet may seem to diverge."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    net[0].bias.requires_grad_(False)
    net(torch.ones(3, 2)).sum().backward()
    arrays, kept = (
        Arrays(),
        KeptValues({"model": net, "optimizer": torch.optim.Adam(net.parameters())}),
    )
    kept.pack(arrays)
    kept.pack_gradients(arrays)
    kinds = {key.partition(":")[2]: kind for key, kind in kept.kinds(arrays).items()}
    trained = ["0.weight", "1.weight", "1.bias"]
    assert {name for name, kind in kinds.items() if kind is Kind.WEIGHT} == {
        f"model.{name}" for name in trained
    }
    assert {name for name, kind in kinds.items() if kind is Kind.OWN} == {
        f"gradient.model.{name}" for name in trained
    }


def draw() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()


def seed() -> None:
    torch.manual_seed(5)
    np.random.seed(6)
    random.seed(7)


def test_what_data_draws_changes_nothing_for_the_script() -> None:
    seed()
    expected = [draw(), draw()]
    seed()
    stream = Stream(3)
    found = [draw()]
    with stream.drawing():
        first = draw()
    found.append(draw())
    assert found == expected
    again = Stream(3)
    with again.drawing():
        assert draw() == first
        second = draw()
    with stream.drawing():
        assert draw() == second, "it goes on where it was"


def test_sparse_tensors_are_coalesced_if_they_were() -> None:
    one = torch.sparse_coo_tensor(torch.tensor([[1, 1, 2]]), torch.ones(3), (3,))
    for tensor in (one, one.coalesce()):
        arrays = Arrays()
        form: Any = arrays.add("tensor", tensor)
        again = made(form, arrays.arrays)
        assert again.is_coalesced() == tensor.is_coalesced()
        assert again.to_dense().tolist() == [0, 2, 1]


def test_a_deque_holds_as_many_as_before() -> None:
    arrays = Arrays()
    packed = pack(arrays, "latest", deque([1.0, 2.0], maxlen=2))
    found = unpack(packed, arrays.arrays)
    found.append(3.0)
    assert found == deque([2.0, 3.0])
    assert unpack(pack(arrays, "all", deque([1])), {}).maxlen is None
