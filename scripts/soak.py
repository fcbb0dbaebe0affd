"""Trains again and again while workers are killed at random, and counts what was survived.

`make soak MINUTES=10` runs this. The jobs are examples on 4 ranks: TensorFlow's, or PyTorch's in
turn. Their final weights have to be those of an undisturbed run, bit for bit, whoever was killed,
when and how.
"""

import argparse
import contextlib
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.job import Job, resolve
from hvd_ft.launcher.live_display import Ranks, ranks_table
from hvd_ft.launcher.run import launch
from hvd_ft.native.observer import Observer
from hvd_ft.native.types import EventType, State
from hvd_ft.reports.report import read_report

ROOT = Path(__file__).resolve().parent.parent
# Of each framework: examples, and epochs that leave time for all strikes.
EXAMPLES = {
    "tensorflow": {"digits_keras.py": 40},
    "torch": {"digits_torch.py": 100, "digits_torch_ddp.py": 100},
}
OUT = ROOT / "out"
RANKS = 4
STRIKES = 12  # a job, or it would never end
WAYS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
TICK_SECONDS = 0.25  # the launcher's
HANG_SECONDS = 60.0  # without any progress
LAST_WORDS_SECONDS = 3.0  # for the tracebacks of a job that hangs
KEPT_LINES = 2000
RESULT = re.compile(r'{"rank": (\d+),[^{]*"weights_sha256": "(\w+)"}')


@dataclass
class Tally:
    """What has been survived so far, and what has not.

    Attributes:
        jobs: that ended.
        wrong: of these, with other weights than undisturbed.
        hangs: of these, without progress.
        broken: of these, with an error.
        kills: workers killed, by signal, in jobs that ended well.
        together: of these, killed at the same moment as another one.
        in_recovery: of these, killed while a rank was on its way back.
    """

    jobs: int = 0
    wrong: int = 0
    hangs: int = 0
    broken: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    together: int = 0
    in_recovery: int = 0

    @property
    def failed(self) -> bool:
        return bool(self.wrong or self.hangs or self.broken)

    def table(self) -> Table:
        """Lays it out."""
        table = Table(title="Soak", title_justify="left", show_header=False)
        ways = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        table.add_row("jobs", str(self.jobs))
        table.add_row("kills survived", f"{self.kills.total()}" + (f" ({ways})" if ways else ""))
        table.add_row("  several at once", str(self.together))
        table.add_row("  during a recovery", str(self.in_recovery))
        table.add_row("wrong weights", str(self.wrong))
        table.add_row("hangs", str(self.hangs))
        table.add_row("jobs ended with an error", str(self.broken))
        return table


class Plan:
    """The kills of one job: which rank, when and how.

    Args:
        chance: the random generator. strikes: number of kills.
    """

    def __init__(self, chance: random.Random, strikes: int) -> None:
        self._chance = chance
        self._left = strikes
        self._wait: float | None = None

    def due(self, now: float) -> bool:
        """Returns whether the next strike is due; `now` is in seconds on any steady clock."""
        if self._left == 0:
            return False
        if self._wait is None:
            # A third comes while those killed last are on their way back.
            longest = 3 if self._chance.random() < 1 / 3 else 8
            self._wait = now + self._chance.uniform(0, longest)
        if now < self._wait:
            return False
        self._wait = None
        self._left -= 1
        return True

    def victims(self, ranks: Sequence[int]) -> list[tuple[int, signal.Signals]]:
        """Draws some of `ranks`, mostly one, and how each is killed."""
        [count] = self._chance.choices((1, 2, len(ranks)), (75, 20, 5))
        chosen = self._chance.sample(ranks, min(count, len(ranks)))
        return [(rank, self._chance.choice(WAYS)) for rank in chosen]

    def moment(self) -> float:
        """Draws the seconds from a tick of the launcher to the kill."""
        return self._chance.uniform(0, TICK_SECONDS)


class Stillness:
    """Notices when a job makes no progress; seconds are on any steady clock."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since = 0.0

    def seconds(self, observer: Ranks, now: float) -> float:
        """Returns for how long nothing has changed."""
        ranks = [observer.status(rank) for rank in range(observer.size)]
        seen = [(status.executed, status.incarnation, status.state) for status in ranks]
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since


def waited_for(observer: Ranks) -> str:
    """Says which ranks have executed the fewest ops: the others wait for them."""
    ranks = {rank: observer.status(rank) for rank in range(observer.size)}
    least = min(status.executed for status in ranks.values())
    return "; ".join(
        f"rank {rank}, {status.state.name.lower()}, incarnation {status.incarnation}, "
        f"pid {status.pid}, {status.executed} ops executed"
        for rank, status in ranks.items()
        if status.executed == least
    )


class Hang(Exception):
    """The job makes no progress."""


class Killer:
    """Watches a job, kills workers by a plan, and raises Hang when it stands still."""

    def __init__(self, plan: Plan, until: float) -> None:
        self._plan = plan
        self._until = until
        self._stillness = Stillness()
        self._hang: tuple[float, str] | None = None
        self.together = 0
        self.in_recovery = 0

    def __call__(self, observer: Observer) -> None:
        now = time.monotonic()
        if self._hang:
            if now > self._hang[0] + LAST_WORDS_SECONDS:
                raise Hang(self._hang[1])
        elif self._stillness.seconds(observer, now) > HANG_SECONDS:
            self._hang = (
                now,
                f"no progress for {HANG_SECONDS:.0f} s; waited for {waited_for(observer)}",
            )
            for rank in range(observer.size):
                _kill(
                    observer.status(rank).pid, signal.SIGABRT
                )  # Python's fault handler prints where
        elif now < self._until and self._plan.due(now):
            time.sleep(self._plan.moment())  # to strike at any moment, not at ticks only
            self._strike(observer)

    def _strike(self, observer: Observer) -> None:
        ranks = {rank: observer.status(rank) for rank in range(observer.size)}
        away = any(s.state in (State.RESTARTING, State.REPLAYING) for s in ranks.values())
        victims = self._plan.victims([rank for rank, status in ranks.items() if status.pid])
        for rank, way in victims:
            _kill(ranks[rank].pid, way)
        self.together += len(victims) if len(victims) > 1 else 0
        self.in_recovery += len(victims) if away else 0


def _kill(pid: int, way: signal.Signals) -> None:
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, way)


class Display:
    """Shows the tally and the ranks on a terminal, and keeps the job's last lines."""

    takes_output = True

    def __init__(self, live: Live | None, tally: Tally) -> None:
        self._live = live
        self._tally = tally
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)

    def update(self, observer: Ranks) -> None:
        """Draws it again."""
        if self._live:
            ranks = ranks_table(observer, time.monotonic_ns())
            self._live.update(Group(self._tally.table(), ranks), refresh=True)

    def output(self, line: str) -> None:
        """Keeps a line."""
        self.lines.append(line)


def ended(lines: Iterable[str]) -> dict[int, str]:
    """Returns the digest of each rank's weights, from the line that an example ends with.

    A rank that is killed in that line or after it prints it again: the last one counts.
    """
    return {int(rank): digest for line in lines for rank, digest in RESULT.findall(line)}


class Soak:
    """Runs jobs and counts.

    Args:
        console: where the report goes.
        live: for the live lines, or None.
        examples: names of scripts, and how many epochs each trains.
    """

    def __init__(self, console: Console, live: Live | None, examples: Mapping[str, int]) -> None:
        self._console = console
        self._live = live
        self._examples = examples
        self.tally = Tally()
        self._expected: dict[str, str] = {}  # digest of the weights, by example

    def undisturbed(self) -> None:
        """Runs each example as it should be.

        Raises:
            HvdFtError: one failed.
        """
        for example in self._examples:
            killer = Killer(Plan(random.Random(), 0), 0)
            digests, trouble = self._run(example, killer, Display(None, self.tally))
            if trouble or len(digests) != 1:
                why = trouble or "the weights differ"
                raise HvdFtError(f"the undisturbed job failed: {example}: {why}")
            [self._expected[example]] = digests

    def disturbed(self, chance: random.Random, until: float) -> None:
        """Runs the next example, kills its workers, and counts what comes of it.

        Args:
            chance: where victims and moments are drawn from.
            until: when killing ends, on the clock of `time.monotonic`.
        """
        number = self.tally.jobs + 1
        example = list(self._examples)[self.tally.jobs % len(self._examples)]
        killer = Killer(Plan(chance, STRIKES), until)
        shown = Display(self._live, self.tally)
        digests, trouble = self._run(example, killer, shown)
        self.tally.jobs = number
        if trouble is None and digests != {self._expected[example]}:
            self.tally.wrong += 1
            trouble = f"the weights are {sorted(digests)}, not {self._expected[example]}"
        if trouble:
            log = OUT / f"soak-failed-{number}.log"
            log.write_text("\n".join([*shown.lines, ""]))
            self._console.print(
                f"[bold red]job {number} ({example}): {trouble}[/]; its output is in {log}"
            )
            return
        deaths = self._deaths()
        self.tally.kills += deaths
        self.tally.together += killer.together
        self.tally.in_recovery += killer.in_recovery
        self._console.print(
            f"job {number} ({example}): {deaths.total()} kills, weights as undisturbed"
        )

    def _run(self, example: str, killer: Killer, shown: Display) -> tuple[set[str], str | None]:
        """Runs one job; returns the digests of the ranks' weights, and what went wrong."""
        (OUT / "soak.jsonl").unlink(missing_ok=True)
        script = [str(ROOT / "examples" / example), "--epochs", str(self._examples[example])]
        job = Job(RANKS, [sys.executable, *script], report=str(OUT / "soak.jsonl"))
        try:
            code = launch(resolve(job), shown, killer)
        except Hang as hang:
            self.tally.hangs += 1
            return set(), str(hang)
        if code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
            raise KeyboardInterrupt
        digests = ended(shown.lines)
        if code != 0 or len(digests) != RANKS:
            self.tally.broken += 1
            return set(), f"it ended with exit code {code} and {len(digests)} of {RANKS} results"
        return set(digests.values()), None

    @staticmethod
    def _deaths() -> Counter[str]:
        """Counts the deaths in the last job's report, by signal."""
        events = read_report(OUT / "soak.jsonl").events
        deaths = [event.detail for event in events if event.type is EventType.FAILED]
        return Counter(
            signal.Signals(-code).name if code < 0 else f"exit {code}"
            for code in map(os.waitstatus_to_exitcode, deaths)
        )


def main() -> int:
    """Runs the soak; returns 0 if everything was survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long workers are killed")
    parser.add_argument("--seed", type=int, help="of the draw of victims and moments")
    parser.add_argument("--framework", choices=sorted(EXAMPLES), default="tensorflow")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    os.environ.update(HOROVOD_FT_MAX_FAILURES="9999", PYTHONFAULTHANDLER="1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    OUT.mkdir(exist_ok=True)
    console = Console()
    console.print(f"{RANKS} ranks train, workers are killed for {options.minutes:g} min; "
                  f"seed {seed}")  # fmt: skip
    chance = random.Random(seed)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        shown = live if console.is_terminal else None
        soak = Soak(console, shown, EXAMPLES[options.framework])
        with contextlib.suppress(KeyboardInterrupt):
            soak.undisturbed()
            until = time.monotonic() + options.minutes * 60
            while time.monotonic() < until:
                soak.disturbed(chance, until)
    console.print(soak.tally.table())
    return 1 if soak.tally.failed or not soak.tally.jobs else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HvdFtError as error:
        sys.exit(f"hvdft: {error}")
