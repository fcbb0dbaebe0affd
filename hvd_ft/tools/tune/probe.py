"""`hvdft probe`: threads that share one endpoint against as many endpoints, between two ranks.

MPI is started with split threads or without them, so the two sides are separate jobs. They and the
referee, IMB-MT, take turns of one round each, so a disturbance of the machine affects all of them.
"""

import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.job.processes import end_processes
from hvd_ft.launcher.job import Job, resolve
from hvd_ft.members.hosts import Host, machine_file
from hvd_ft.mpi import leftover_files
from hvd_ft.mpi.environment import mpiexec_command, split_into
from hvd_ft.native.core import die_with_parent
from hvd_ft.system.json_text import read_json
from hvd_ft.system.memory_file import memory_file
from hvd_ft.tools.tune import referee

SHARED, ENDPOINTS = "one endpoint", "endpoints"
SIDES = (SHARED, ENDPOINTS)
OURS, REFEREE = "hvdft", "IMB-MT"
START_SECONDS = 120.0  # a job that takes so much longer than its measurements hangs
_SLOWER = 20  # a measurement takes at most so many times what it is meant to
_RANKS = 2


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        hosts: The hosts of the two ranks, one each; none: both are on this host.
        fabric: `shm` for shared memory, or `ofi` for the network.
        sizes: Sizes of a message in bytes.
        threads: Numbers of threads.
        rounds: Rounds of each side.
        seconds: Seconds of each measurement.
        by: `OURS`, and `REFEREE` if it is asked for.
    """

    hosts: Sequence[Host]
    fabric: str
    sizes: Sequence[int]
    threads: Sequence[int]
    rounds: int
    seconds: float
    by: Sequence[str] = (OURS,)

    @property
    def limit_seconds(self) -> float:
        """How long a job may take."""
        return START_SECONDS + _SLOWER * self.seconds * len(self.sizes) * len(self.threads)


@dataclass(frozen=True)
class Cell:
    """The configuration in which a rate is measured.

    Attributes:
        by: `OURS` or `REFEREE`.
        side: One of `SIDES`.
        threads: The number of threads.
        bytes: Bytes of a message.
    """

    by: str
    side: str
    threads: int
    bytes: int


@dataclass
class Found:
    """The measurements.

    Attributes:
        rates: Messages per second in each round, both directions together, by cell.
        windows: Messages that a thread has under way in each direction, by bytes.
        wrong: The number of bytes that did not arrive as they were sent.
        library: MPI's name and version.
        providers: The providers of libfabric that are loaded, by side; none: shared memory.
        why: Why there are no endpoints; "" if there are.
    """

    rates: dict[Cell, list[float]] = field(default_factory=dict)
    windows: dict[int, int] = field(default_factory=dict)
    wrong: int = 0
    library: str = ""
    providers: dict[str, Sequence[str]] = field(default_factory=dict)
    why: str = ""

    def add(self, cell: Cell, rate: float) -> None:
        """Notes the rate of one more round."""
        self.rates.setdefault(cell, []).append(rate)

    @property
    def rounds(self) -> str:
        """The number of rounds of each cell, in words."""
        counts = {len(rates) for rates in self.rates.values()}
        return str(max(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"

    @property
    def between(self) -> str:
        """The connection between the two ranks, in words."""
        over = {
            side: f"libfabric {'+'.join(names)}" if names else "shared memory"
            for side, names in self.providers.items()
        }
        same = len({*over.values()}) == 1
        return " ".join({*over.values()} if same else (f"{s}: {over[s]}" for s in over))

    def rate(self, cell: Cell) -> float | None:
        """Returns the median of a cell's rounds; None if it was not measured."""
        return statistics.median(self.rates[cell]) if cell in self.rates else None

    def gains(self, by: str, threads: int, size: int) -> list[float]:
        """Returns how many times as fast endpoints are, round by round; none: not measured."""
        ours, shared = (self.rates.get(Cell(by, side, threads, size), ()) for side in SIDES[::-1])
        return [a / b for a, b in zip(ours, shared, strict=False)]

    def gain(self, by: str, threads: int, size: int) -> float | None:
        """Returns how many times as fast endpoints are: the median of the rounds' ratios."""
        gains = self.gains(by, threads, size)
        return statistics.median(gains) if gains else None

    def winner(self, by: str, threads: int, size: int) -> str:
        """Returns the side that was faster in every round; "" if neither was."""
        gains = self.gains(by, threads, size)
        if gains and min(gains) > 1:
            return ENDPOINTS
        return SHARED if gains and max(gains) < 1 else ""


def measure(plan: Plan, show: Callable[[str], None], found: Found | None = None) -> Found:
    """Measures everything.

    Args:
        plan: What to measure.
        show: Called with a line about what is being done.
        found: Receives the results, also if the measurement is cut short.

    Raises:
        HvdFtError: A job failed.
    """
    found = Found() if found is None else found
    for number in range(plan.rounds):
        sides = SIDES if number % 2 == 0 else SIDES[::-1]
        for side in sides:
            for by in plan.by:
                if side == ENDPOINTS and found.why:
                    continue
                show(f"round {number + 1} of {plan.rounds}: {side}, {by}")
                _round(plan, by, side, found)
    return found


def _round(plan: Plan, by: str, side: str, found: Found) -> None:
    if by == REFEREE:
        _referee_round(plan, side, found)
        return
    numbers = [",".join(map(str, each)) for each in (plan.sizes, plan.threads)]
    command = [sys.executable, "-m", "hvd_ft.tools.tune.probe_rank"]
    command += ["--sizes", numbers[0], "--threads", numbers[1], "--seconds", str(plan.seconds)]
    split = ["--split"] if side == ENDPOINTS else []
    # The first endpoint is the main thread's.
    output = _run(plan, [*command, *split], _variables(side, 1 + max(plan.threads)))
    # MPI may print lines of its own, such as I_MPI_DEBUG's.
    ours = [line for line in output.splitlines() if line.startswith("{")]
    facts, *lines = map(read_json, ours)
    found.library, found.providers[side] = facts["library"], facts["providers"]
    found.why = found.why or facts["why"]
    for line in lines:
        found.windows[line["bytes"]] = line["window"]
        found.wrong += line["wrong"]
        found.add(Cell(OURS, side, line["threads"], line["bytes"]), line["messages_per_second"])


def _referee_round(plan: Plan, side: str, found: Found) -> None:
    """Lets IMB-MT measure the same for about the same time."""
    for threads in plan.threads:
        variables = {**_variables(side, threads), "OMP_NUM_THREADS": str(threads)}
        for size, window in found.windows.items():
            # By the faster side's: of a few windows chance alone says how fast they are.
            rate = max(found.rate(Cell(OURS, each, threads, size)) or 1.0 for each in SIDES)
            command = referee.command(size, window, rate, plan.seconds)
            output = _run(plan, command, variables)
            found.add(Cell(REFEREE, side, threads, size), referee.parse(output, threads))


def _variables(side: str, endpoints: int) -> dict[str, str]:
    # One endpoint is a number of split threads too, but not for threads that share it.
    return split_into(max(endpoints, 2) if side == ENDPOINTS else 1)


def _run(plan: Plan, command: Sequence[str], variables: Mapping[str, str]) -> str:
    """Runs a program on the two ranks; returns its output.

    Raises:
        HvdFtError: The program fails, or does not end.
    """
    with memory_file(machine_file(plan.hosts)) as machines:
        job = Job(_RANKS, command, hosts=plan.hosts, machine_file=machines if plan.hosts else None)
        environment = {**resolve(job).environment, "I_MPI_FABRICS": plan.fabric, **variables}
        if plan.fabric != "shm" and not plan.hosts:
            environment.setdefault("FI_PROVIDER", "tcp")
            environment.setdefault("FI_TCP_IFACE", "lo")
        # By libfabric's variable MPI loads all providers, and may take one that has tcp below it.
        if provider := environment.pop("FI_PROVIDER", ""):
            environment.setdefault("I_MPI_OFI_PROVIDER", provider)
        where = ["-machinefile", machines] if plan.hosts else []
        process = subprocess.Popen(
            [*mpiexec_command(_RANKS, environment), *where, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (there is no other thread here)
        )
        try:
            output, errors = process.communicate(timeout=plan.limit_seconds)
        except subprocess.TimeoutExpired:
            raise HvdFtError(
                f"the probe has not ended after {plan.limit_seconds:.0f} s: give fewer --threads "
                "than the hosts have CPUs, or fewer --sizes"
            ) from None
        finally:
            _end(process, job.id)
    if process.returncode:
        raise HvdFtError(f"the probe failed: {_reason(output, errors, process.returncode)}")
    return output


def _end(process: "subprocess.Popen[Any]", job: str) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    end_processes(job, patience_seconds=0)
    leftover_files.sweep()


def _reason(output: str, errors: str, code: int) -> str:
    if "libiomp5" in errors:
        return "IMB-MT needs libiomp5.so: run 'pip install intel-openmp', or leave --referee out"
    lines = [line.strip() for line in (output + errors).splitlines() if line.strip()]
    return f"mpiexec ended with code {code}, and says: {' | '.join(lines[-3:])}"
