"""Jobs on a cluster of nodes to which faults happen: what they say, where their processes are."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from conftest import HANG_SECONDS, Cluster

HVDFT = [sys.executable, "-m", "hvd_ft.cli"]
SCRIPT = Path(__file__).with_name("ranks_script.py")
NODES = ["n0", "n1", "n2", "n3", "n4"]
HOSTS = {"n0": 1, "n1": 2, "n2": 1}
SLOTS = 2  # of each of the other nodes
RANKS = 4
TRAINS = "10 steps are done"
# Shorter than the defaults, so that silence is noticed sooner; the rules are the same.
LIMITS = {
    "HOROVOD_FT_LEASE_SECONDS": "5",
    "HOROVOD_FT_MAX_FAILURES": "10",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_MARK = "HVD_FT_PAIR"
_LOOK_SECONDS = 0.02  # at processes and files


def until(happens: Callable[[], Any], what: str) -> Any:
    """Waits until this returns something true; only what hangs meets the limit."""
    deadline = time.monotonic() + HANG_SECONDS
    while not (found := happens()):
        assert time.monotonic() < deadline, f"{what} has not come"
        time.sleep(_LOOK_SECONDS)
    return found


@dataclass
class Launch:
    """One `hvdft run`, and what it has said so far."""

    process: "subprocess.Popen[str]"
    log: Path  # which has that too, as it comes
    lines: list[str] = field(default_factory=list)
    out: str | None = None  # what its ranks have printed, when it has ended
    over: bool = False  # whether nothing more comes
    _news: threading.Condition = field(default_factory=threading.Condition)

    def listen(self) -> None:
        """Reads what it says: on a thread of its own."""
        assert self.process.stderr
        begun = time.monotonic()
        with self.log.open("w") as log:
            for line in self.process.stderr:
                log.write(f"{time.monotonic() - begun:7.2f} {line}")
                log.flush()
                with self._news:
                    self.lines.append(line)
                    self._news.notify_all()
        with self._news:
            self.over = True
            self._news.notify_all()

    def read(self) -> None:
        """Reads what its ranks print: on another one."""
        assert self.process.stdout
        self.out = self.process.stdout.read()

    @property
    def err(self) -> str:
        return "".join(self.lines)

    def more_than(self, count: int) -> None:
        """Waits until it has said more lines than that, or has ended."""
        with self._news:
            came = self._news.wait_for(lambda: len(self.lines) > count or self.over, HANG_SECONDS)
        assert came, f"it says nothing more:\n{self.err}"

    def awaits(self, texts: Sequence[str], since: int) -> bool:
        """Waits until it has said one of these after so many lines; False: it has ended before."""

        def said() -> bool:
            return any(text in line for line in self.lines[since:] for text in texts)

        with self._news:
            came = self._news.wait_for(lambda: said() or self.over, HANG_SECONDS)
        assert came, f"none of {texts} has come:\n{self.err}"
        return said()


class PairJob:
    """A job, over one launcher after the other.

    Args:
        cluster: where.
        folder: for files, which all nodes share.
        flags: of `hvdft run`, for hosts.
        node: on which the launcher is.
        limits: more settings.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        flags: Sequence[str],
        node: str,
        limits: Mapping[str, str],
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.checkpoints, self.shared = folder / "c", folder / "shared"
        self.shared.mkdir()
        self.hosts_file = folder / "hosts"
        self.end_file = folder / "end"
        self.flags, self.node = [*flags], node
        self._limits = {**LIMITS, **limits}
        self.dead: list[str] = []
        self.launches: list[Launch] = []
        self._mark = uuid.uuid4().hex

    @property
    def now(self) -> Launch:
        """The latest launcher."""
        return self.launches[-1]

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.now.process.poll() is not None

    def launch(self, *more: str, flags: Sequence[str] | None = None, node: str = "") -> Launch:
        """Starts `hvdft run`."""
        self.node = node or self.node
        keep = ["--checkpoint-dir", str(self.checkpoints), "--checkpoint-interval", "1"]
        keep += ["--grace", "300"]
        job = [*HVDFT, "run", "--no-live", "--verbose", "-np", str(RANKS)]
        job += [*(self.flags if flags is None else flags), *keep, *more]
        enter = [*HVDFT, "cluster", "exec", "--name", self.cluster.name, self.node, "--"]
        process = subprocess.Popen(
            [*enter, *job, sys.executable, str(SCRIPT), str(self.end_file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **self._limits,
                "HOROVOD_FT_SHARED_DIR": str(self.shared),
                _MARK: self._mark,
            },
        )
        log = self.folder / f"launcher-{len(self.launches)}.log"
        self.launches.append(Launch(process, log))
        for work in (self.now.listen, self.now.read):
            threading.Thread(target=work, daemon=True).start()
        return self.now

    def trains(self) -> None:
        """Waits until the job of the latest launcher trains."""
        assert self.now.awaits([TRAINS], 0), self.told()

    def told(self) -> str:
        return "\n".join(
            f"--- launcher {n}\n{x.err}{x.out or ''}" for n, x in enumerate(self.launches)
        )

    def ended(self) -> int:
        """Waits for the latest launcher's end; returns its code."""
        try:
            code = self.now.process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job hangs\n{self.told()}") from None
        until(lambda: self.now.over and self.now.out is not None, "the end of its output")
        return code

    # ------------------------------------------------------------ processes

    def processes(self) -> list[psutil.Process]:
        """Returns all processes of the job, on all nodes."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.environ().get(_MARK) == self._mark:
                    found.append(process)
        return found

    def of_kind(self, kind: str) -> dict[int, psutil.Process]:
        """Returns the processes of a kind by rank; 0 for those that have none."""
        found: dict[int, psutil.Process] = {}
        for process in self.processes():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                env = process.environ()
                rank = env.get("HOROVOD_RANK") or env.get("PMI_RANK") or "0"
                if _kind(process, env) == kind:
                    found[int(rank)] = process
        return found

    def strike(self, kind: str, ranks: Sequence[int], count: int, number: signal.Signals) -> None:
        """Sends a signal to processes as soon as there are any, unless the job ends before.

        Args:
            kind: of them.
            ranks: those that are preferred, first.
            count: of processes.
            number: the signal.
        """

        def struck() -> bool:
            found = self.of_kind(kind)
            hit = [found[rank] for rank in ranks if rank in found][:count]
            for process in hit:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            return bool(hit) or self.over

        until(struck, f"a process of the kind {kind}")

    def fault(self, *words: str) -> None:
        """Has a fault happen to a node, by `hvdft cluster`."""
        ended = self.cluster.hvdft(*words)
        assert ended.code == 0, ended
        if words[0] == "kill":
            self.dead.append(words[1])

    # ------------------------------------------------------------ what is left

    def clear(self, *, resumable: bool, abandoned: bool) -> None:
        """Waits until no process is left, and sees that no file is.

        Args:
            resumable: whether the job's state may be there, for `--resume`.
            abandoned: whether the record of a launcher may be.
        """
        # Hydra's ssh may try for a while to reach a dead mpirun.
        until(lambda: not self._left(), f"the end of {self._left()}")
        alive = [node for node in NODES if node not in self.dead]
        for node in alive if resumable else ():
            shared = f"HOROVOD_FT_SHARED_DIR={self.shared}"
            ended = self.cluster.hvdft("exec", node, "env", shared, *HVDFT, "clean", "--yes")
            assert ended.code == 0, ended
        shown = self.cluster.hvdft("exec", alive[0], *HVDFT, "clean", "--dry-run")
        assert "would remove nothing" in shown.out + shown.err, (shown, self.told())
        for node in alive:
            left = self.cluster.sh(node, "ls -d /dev/shm/hvdft-*/* || :")
            assert not left, (node, left, self.told())
        assert abandoned or not [*self.shared.iterdir()], self.told()

    def _left(self) -> list[str]:
        left = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if "hydra" not in (words := " ".join(process.cmdline())):
                    left.append(words)
        return left

    def kill_all(self) -> None:
        """Leaves nothing, whatever has happened."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def results(self) -> list[dict[str, Any]]:
        """Returns what the ranks of the latest launcher ended with, by rank."""
        lines = [line for line in (self.now.out or "").splitlines() if line.startswith("END ")]
        # A rank that is killed at its end says it twice.
        found = {json.dumps(json.loads(line[4:]), sort_keys=True) for line in lines}
        return sorted(map(json.loads, found), key=lambda each: int(each["rank"]))


def _kind(process: psutil.Process, env: dict[str, str]) -> str:
    words = process.cmdline()
    if "hvd_ft.checkpointer" in words:
        return "checkpointer"
    if words[1:4] == ["-m", "hvd_ft.cli", "run"]:
        return "launcher"
    if "HOROVOD_RANK" in env:
        return "worker"
    if process.name() == "mpiexec.hydra":
        return "mpirun"
    if "hvd_ft.agent" not in words:
        return "other"
    # A shim, whose command line is the same, has a session of its own.
    return "shim" if os.getsid(process.pid) == process.pid else "agent"


@contextlib.contextmanager
def running(job: PairJob) -> Iterator[PairJob]:
    """Leaves no process of a job, whatever happens."""
    try:
        yield job
    finally:
        job.kill_all()
