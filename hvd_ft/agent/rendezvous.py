"""How the agents of a job meet and finish, with all of the agents' own MPI calls.

In between, an agent makes no MPI calls here; leaders use separate threads for the ring
(mpi/leader.h). An MPI call cannot time out, so the shim ends the agent if one takes too long.
"""

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.mpi.environment import split_threads
from hvd_ft.mpi.variables import launch_rank, launch_sizes
from hvd_ft.shim.client import ShimClient
from hvd_ft.system.json_text import read_json

FINALIZE_TIMEOUT_SECONDS = 20.0


class Rendezvous:
    """All agents of the job, each in its rank.

    Attributes:
        rank: of this agent.
        size: of the job.
        library: MPI's name and version.
        nothing_under_way: whether all transfers that leaders have begun over MPI are complete.
    """

    def __init__(self, shim: ShimClient, timeout_seconds: float, *, flat: bool) -> None:
        """Initialises MPI.

        Args:
            shim: keeps the time.
            timeout_seconds: how long MPI_Init may take, and any one call of `exchange` and `agree`.
            flat: whether every rank is a member of the ring, even ranks on the same host.

        Raises:
            HvdFtError: MPI cannot be used.
        """
        self._shim = shim
        self._timeout = timeout_seconds
        self.nothing_under_way = True
        # Hydra sets both before MPI_Init.
        self.rank = launch_rank(os.environ)
        self.size, here = launch_sizes(os.environ)
        with self._in_time("MPI_Init"):
            try:
                import mpi4py

                # Leaders of nodes have threads that call MPI; on one node only this thread does.
                several = here < self.size or (flat and self.size > 1)
                mpi4py.rc.thread_level = "multiple" if several else "funneled"
                if several:
                    os.environ.update(split_threads(os.environ))
                mpi4py.rc.finalize = False
                with warnings.catch_warnings():
                    # Errors of other MPIs' launchers: foreign_launcher.py puts them into one line.
                    warnings.filterwarnings("ignore", "suspicious MPI execution environment")
                    from mpi4py import MPI
            except (ImportError, RuntimeError) as error:
                reason = str(error).splitlines()[0]
                raise HvdFtError(
                    f"MPI does not start ({reason}): run `hvdft check` or start with `hvdft run`"
                ) from error
        # Agents exchange plain data, so JSON is enough and nothing is unpickled.
        MPI.pickle.__init__(_to_json, _from_json)  # type: ignore[misc]
        self._mpi = MPI
        self._world = MPI.COMM_WORLD
        self.rank = self._world.rank
        self.size = self._world.size
        self.library: str = MPI.Get_library_version().strip("\0").splitlines()[0]

    def exchange(self, what: str, value: Any) -> list[Any]:
        """Sends a value to every agent, and returns the values of all.

        Args:
            what: names the exchanged value in the error when an agent does not take part.
            value: anything that JSON can represent.

        Returns:
            The values, in the order of ranks.
        """
        with self._in_time(what):
            values: list[Any] = self._world.allgather(value)
        return values

    def agree(self, what: str, act: Callable[[], Any]) -> list[Any]:
        """Lets every agent do its part, and waits until all have done it.

        Args:
            what: names the action in the error when an agent does not take part.
            act: this agent's part; returns anything that JSON can represent.

        Returns:
            What `act` returned, in the order of ranks.

        Raises:
            HvdFtError: on every rank, if `act` raised it, or an OSError, on one; `FailedElsewhere`
                where it was not this rank (or another printed the same line already).
        """
        error = None
        result = None
        try:
            result = act()
        except HvdFtError as caught:
            error = str(caught)
        except OSError as caught:
            error = (
                f"rank {self.rank} cannot continue in {what} ({caught}): make that possible on its "
                "host, and start the job again"
            )
        outcomes = self.exchange(what, [error, result])
        for rank, (text, _) in enumerate(outcomes):
            if text is not None:
                raise HvdFtError(text) if rank == self.rank else FailedElsewhere(text)
        return [outcome for _, outcome in outcomes]

    def send(self, what: str, rank: int, data: memoryview) -> None:
        """Sends bytes to an agent, which receives as many."""
        with self._in_time(what):
            self._world.Send([data, self._mpi.BYTE], rank)

    def receive(self, what: str, rank: int, room: memoryview) -> None:
        """Receives from an agent as many bytes as there is room for."""
        with self._in_time(what):
            self._world.Recv([room, self._mpi.BYTE], rank)

    def leaders(self, leads: bool) -> int | None:
        """Makes a communicator of some agents, in the order of their ranks.

        Args:
            leads: whether this agent is one of them.

        Returns:
            MPI's handle of it, or None.
        """
        with self._in_time("making the leaders' communicator"):
            chosen = self._world.Split(0 if leads else self._mpi.UNDEFINED)
        return int(self._mpi._handleof(chosen)) if leads else None

    def begin_end(self, others_seconds: float) -> None:
        """The job is over: from now on another limit applies to waits for other agents.

        Args:
            others_seconds: how much later than this agent another agent may end.
        """
        self._timeout = FINALIZE_TIMEOUT_SECONDS + others_seconds

    def finalize(self) -> None:
        """Waits for the other agents and finalises MPI."""
        self.begin_end(0.0)
        with self._in_time("the end of the job"):
            self._world.barrier()
            # MPI_Finalize would wait for transfers that the other end never completes.
            if self.nothing_under_way:
                self._mpi.Finalize()

    @contextlib.contextmanager
    def _in_time(self, what: str) -> Iterator[None]:
        others = ", ".join(str(rank) for rank in range(self.size) if rank != self.rank)
        self._shim.limit(
            self._timeout,
            f"rank {self.rank} waited {self._timeout:g} s in {what} for some of the agents of rank "
            f"{others}: check that they run; HOROVOD_FT_START_TIMEOUT_SECONDS is the start's limit",
        )
        try:
            yield
        finally:
            self._shim.unlimit()


class FailedElsewhere(HvdFtError):
    """An error of another rank, which prints it for the user."""


def _to_json(value: Any, protocol: int | None = None) -> bytes:
    return json.dumps(value).encode("ascii")


def _from_json(data: Any) -> Any:
    return read_json(bytes(data))
