"""The worker of `hvdft bench training --framework torch`: run with `python -m`.

The models are those of the TensorFlow worker. On ft and on MPI Horovod's optimizer reduces the
gradients, with Gloo DistributedDataParallel does. With a socket, its loop continues for another
round whenever the driver asks. With a result directory it trains once, so that a restarted process
can resume by itself, and writes the duration.
"""

import argparse
import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import hvd_ft.torch as hvd
from hvd_ft.system.channel import Channel
from hvd_ft.tools.bench import driver_requests

WARMUP_STEPS = 4  # memory is allocated and Horovod's buffers grow

_IMAGES = 512  # different batches; they are used repeatedly


def digits() -> tuple[nn.Module, tuple[int, ...], int]:
    """The model, image shape and batch size of the TensorFlow worker's `digits`."""
    body = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)), (1, 8, 8), 14


def cnn() -> tuple[nn.Module, tuple[int, ...], int]:
    """A CNN of 24 million parameters, most of them in its first dense layer."""
    body: list[nn.Module] = []
    before = 3
    for filters in (32, 64, 128):
        body += [nn.Conv2d(before, filters, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        before = filters
    top = [nn.Flatten(), nn.Linear(8192, 2560), nn.ReLU(), nn.Linear(2560, 1024), nn.ReLU()]
    return nn.Sequential(*body, *top, nn.Linear(1024, 100)), (3, 64, 64), 32


def dense(width: int = 3535) -> tuple[nn.Module, tuple[int, ...], int]:
    """Two dense layers with 25 million parameters, which compute little for each parameter."""
    body = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*body, nn.Linear(width, 10)), (width,), 32


def dense100() -> tuple[nn.Module, tuple[int, ...], int]:
    """The same with 100 million parameters."""
    return dense(7070)


MODELS = {"digits": digits, "cnn": cnn, "dense": dense, "dense100": dense100}


class Training:
    """A model that can be trained for some steps repeatedly."""

    def __init__(self, model: str, snapshot_steps: int | None, gloo: Path | None) -> None:
        torch.manual_seed(1)  # the same weights on every rank
        self.gloo = gloo is not None
        if gloo is not None:
            rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
            dist.init_process_group(
                "gloo", init_method=f"file://{gloo}", rank=rank, world_size=size
            )
            self.rank = rank
        else:
            hvd.init()
            self.rank = hvd.rank()
        self._snapshot_steps = snapshot_steps
        made, shape, self._batch = MODELS[model]()
        self._own = made
        optimizer: Any = (
            torch.optim.Adam(made.parameters(), 0.003 if model == "digits" else 1e-4)
            if model != "cnn"
            else torch.optim.SGD(made.parameters(), 0.001, momentum=0.9)
        )
        self._model = nn.parallel.DistributedDataParallel(made) if self.gloo else made
        if not self.gloo:
            named = made.named_parameters()
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=named)
        self._optimizer = optimizer
        random = torch.Generator().manual_seed(self.rank)
        self._images = torch.rand((_IMAGES, *shape), generator=random)
        self._labels = torch.randint(0, 10, (_IMAGES,), generator=random)

    def steps(self, count: int) -> Iterator[int]:
        """Trains for some steps; yields the number of each before it is done."""
        batches = range(count)
        if self.gloo:
            for step in batches:
                yield step
                self._step(step)
            return
        state = hvd.State(
            model=self._own,
            optimizer=self._optimizer,
            snapshot_steps=self._snapshot_steps,
        )
        state.sync()
        while state.batch < count:
            yield state.batch
            self._step(state.batch)
            state.batch += 1
            state.commit()
        state.finish()

    def _step(self, step: int) -> None:
        begin = step * self._batch % (_IMAGES - self._batch)
        some = slice(begin, begin + self._batch)
        self._optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self._model(self._images[some]), self._labels[some])
        loss.backward()
        self._optimizer.step()

    def facts(self) -> dict[str, Any]:
        """A rank's images in a step, and sizes in bytes; valid once a step was made."""
        state = self._optimizer.state.values()
        slots = [each for own in state for each in own.values() if torch.is_tensor(each)]
        parameters = list(self._own.parameters())
        return {
            "batch": self._batch,
            "gradient_bytes": _bytes(parameters),
            "state_bytes": _bytes([*parameters, *slots]),
        }


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


def serve(channel: Channel, training: Training, steps: int, rounds: int) -> None:
    """Trains a round whenever the driver asks, and answers after it."""
    requests = driver_requests.requests(channel, training.rank)
    begin = 0.0
    for step in training.steps(steps * rounds):
        if step % steps == 0:
            if step:
                _answer(channel, training, begin)
            if next(requests, None) is None:
                raise SystemExit("the driver wants no more rounds")
            begin = time.perf_counter()
    _answer(channel, training, begin)
    next(requests, None)  # the end


def _answer(channel: Channel, training: Training, begin: float) -> None:
    seconds = time.perf_counter() - begin
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    channel.send({"seconds": seconds, "resident_bytes": resident, **training.facts()})


def train_once(training: Training, steps: int, die_step: int | None) -> float:
    """Trains for some steps, and dies once if asked to; returns the seconds that they took."""
    for _ in training.steps(WARMUP_STEPS):
        pass
    begin = time.perf_counter()
    for step in training.steps(steps):
        if step == die_step and hvd.incarnation() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return time.perf_counter() - begin


def main() -> None:
    """Serves the driver until it has no more requests, or trains once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket", nargs="?")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--snapshot-steps", type=int)
    parser.add_argument("--result", type=Path)
    parser.add_argument("--steps", type=int, required=True, help="of a round")
    parser.add_argument("--rounds", type=int, help="of the loop, if there is a socket")
    parser.add_argument("--die-rank", type=int)
    parser.add_argument("--die-step", type=int)
    parser.add_argument("--gloo", type=Path, metavar="FILE", help="use Gloo; its store")
    options = parser.parse_args()
    channel = driver_requests.connect(options.socket) if options.socket else None
    torch.set_num_threads(1)  # several ranks share the CPUs
    training = Training(options.model, options.snapshot_steps, options.gloo)
    if channel:
        serve(channel, training, options.steps, options.rounds)
        return
    die_step = options.die_step if options.die_rank == training.rank else None
    seconds = train_once(training, options.steps, die_step)
    result = {"seconds": seconds, **training.facts()}
    (options.result / f"rank-{training.rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
