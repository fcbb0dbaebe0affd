"""`hvdft bench training`: images per second of each backend, and what a killed rank costs."""

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.job import Job, resolve
from hvd_ft.launcher.run import launch
from hvd_ft.system.json_text import read_json
from hvd_ft.tools.bench import backends
from hvd_ft.tools.bench.memory import MemoryWatch

WORKERS = {
    "tensorflow": "hvd_ft.tools.bench.workers.training",
    "torch": "hvd_ft.tools.bench.workers.torch_training",
}
# Not counted: TensorFlow traces, and the first use of each page of memory costs extra, on ft until
# the log is truncated at the first chosen snapshot.
_WARM_UP_ROUNDS = 3
_SNAPSHOTS = 3  # of a rank: the loop that warms up leaves one, the measured loop has two

Show = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        framework: That the workers use.
        backends: Some of its `series.BACKENDS`.
        ranks: Number of ranks, on this host.
        models: The name of each model and its steps per round.
        rounds: Rounds of each backend, and of the runs with and without a kill.
        snapshot_steps: Steps from one snapshot to the next in the runs with and without a kill;
            throughput is measured with the interval that hvd_ft chooses by itself.
        round_limit_seconds: A round that takes longer fails the run.
    """

    framework: str
    backends: Sequence[str]
    ranks: int
    models: dict[str, int]
    rounds: int
    snapshot_steps: int
    round_limit_seconds: float


@dataclass
class Result:
    """The measurements of one model.

    Attributes:
        images: Images that all ranks together use in a round.
        seconds: Seconds of the slowest rank in each round, by backend.
        undisturbed: Seconds of each ft run in which nothing failed.
        killed: Seconds of the slowest survivor in each ft run in which one rank was killed.
        gradient_bytes: Bytes that a rank reduces in a step.
        state_bytes: Bytes of a rank's snapshot.
        arena_bytes: The most memory of the arenas that was in use.
        arena_bound_bytes: 2 · gradients · steps between snapshots, and the snapshots.
        agent_bytes: The most memory of an agent with its shim, without the arena.
        worker_bytes: The most resident memory of a worker, by backend. For ft it includes the pages
            of the arena that the worker has mapped; pages mapped twice count twice.
    """

    model: str
    images: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    undisturbed: list[float] = field(default_factory=list)
    killed: list[float] = field(default_factory=list)
    gradient_bytes: int = 0
    state_bytes: int = 0
    arena_bytes: int = 0
    arena_bound_bytes: int = 0
    agent_bytes: int = 0
    worker_bytes: dict[str, int] = field(default_factory=dict)

    def images_per_second(self, backend: str) -> list[float]:
        """Returns the throughput of each round."""
        return [self.images / seconds for seconds in self.seconds[backend]]

    def is_measured(self, backends: Sequence[str]) -> bool:
        """Returns whether there is a round of each backend."""
        return all(self.seconds.get(backend) for backend in backends)

    def ratio(self, other: str) -> float:
        """Returns ft's images per second relative to another backend's, by the medians."""
        medians = {name: statistics.median(own) for name, own in self.seconds.items()}
        return medians[other] / medians["ft"]

    @property
    def lost_seconds(self) -> float:
        """What one kill costs, by the medians."""
        return statistics.median(self.killed) - statistics.median(self.undisturbed)


def measure(plan: Plan, results: list[Result], show: Show, tell: Show) -> None:
    """Measures everything.

    Args:
        plan: What to measure.
        results: Gets the results of each model as they are measured.
        show: Called with a line about what is being done.
        tell: Called with a line about each result.

    Raises:
        HvdFtError: A job failed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for model, steps in plan.models.items():
        result = Result(model)
        results.append(result)
        _throughput(plan, model, steps, result, show, tell=tell)
        if "ft" in plan.backends:
            for number in range(plan.rounds):
                for kill in (False, True):
                    what = "one rank is killed" if kill else "undisturbed"
                    show(f"{model}: {what}, {number + 1} of {plan.rounds}")
                    _whole_run(plan, model, steps, kill, result)
                    seconds = (result.killed if kill else result.undisturbed)[-1]
                    tell(f"{model}: {what}, {seconds:.2f} s")


def _throughput(
    plan: Plan, model: str, steps: int, result: Result, show: Show, *, tell: Show
) -> None:
    show(f"{model}: starting {plan.ranks} ranks of {', then '.join(plan.backends)}")
    result.seconds = {name: [] for name in plan.backends}
    # One fit spans all rounds, as in real training.
    rounds = _WARM_UP_ROUNDS + plan.rounds
    worker = ["--model", model, "--steps", str(steps), "--rounds", str(rounds)]
    module = WORKERS[plan.framework]
    with backends.started(plan.backends, plan.ranks, module, worker) as started:
        for number in range(1 - _WARM_UP_ROUNDS, 1 + plan.rounds):
            for backend in started if number % 2 == 0 else started[::-1]:
                which = f"round {number} of {plan.rounds}" if number > 0 else "to warm up"
                what = f"{model}: {backend.name}, {which}"
                show(what)
                with backend.running():
                    answers = backend.ask({"do": "round"}, plan.round_limit_seconds)
                if number <= 0:
                    continue
                result.seconds[backend.name].append(max(each["seconds"] for each in answers))
                result.images = plan.ranks * steps * answers[0]["batch"]
                result.gradient_bytes = answers[0]["gradient_bytes"]
                result.worker_bytes[backend.name] = max(each["resident_bytes"] for each in answers)
                tell(f"{what}: {result.images_per_second(backend.name)[-1]:.1f} images/s")


def _whole_run(plan: Plan, model: str, steps: int, kill: bool, result: Result) -> None:
    victim = plan.ranks - 1
    with tempfile.TemporaryDirectory(prefix="hvdft-bench-") as folder:
        command = [
            sys.executable,
            "-m",
            WORKERS[plan.framework],
            "--model",
            model,
            "--steps",
            str(steps),
        ]
        command += ["--snapshot-steps", str(plan.snapshot_steps)]
        death = ["--die-rank", str(victim), "--die-step", str(steps // 2)] if kill else []
        job = Job(plan.ranks, [*command, "--result", folder, *death])
        memory = MemoryWatch(job.id)
        code = launch(resolve(job), watch=memory)
        if code > 128:  # a signal
            raise SystemExit(code)
        if code:
            raise HvdFtError(
                f"the training of {model} ended with code {code}; see what it has printed, if "
                "anything, above"
            )
        ranks = [
            read_json((Path(folder) / f"rank-{rank}.json").read_text())
            for rank in range(plan.ranks)
        ]
    # The clock of the killed rank's second process started in the middle.
    (result.killed if kill else result.undisturbed).append(
        max(each["seconds"] for rank, each in enumerate(ranks) if rank != victim)
    )
    result.gradient_bytes, result.state_bytes = ranks[0]["gradient_bytes"], ranks[0]["state_bytes"]
    result.arena_bound_bytes = (
        2 * result.gradient_bytes * plan.snapshot_steps
        + _SNAPSHOTS * plan.ranks * result.state_bytes
    )
    result.arena_bytes = max(result.arena_bytes, memory.arena_bytes)
    result.agent_bytes = max(result.agent_bytes, memory.agent_bytes)
