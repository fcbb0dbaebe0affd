"""The agent's side of the core, seen from Python.

Every name here corresponds to one in ``include/hvd_ft.h``, which documents it; failures raise
:class:`~hvd_ft.errors.HvdFtError` with the core's own line.
"""

from collections.abc import Iterable
from dataclasses import asdict

from hvd_ft.errors import HvdFtError
from hvd_ft.native import abi
from hvd_ft.native.abi import ffi
from hvd_ft.native.rank_words import rank_words
from hvd_ft.native.types import OpRules, WaitResult

WINDOW_BYTES = abi.constant("HVDFT_NODE_WINDOW")  # of an input area, unless told otherwise


def create_node(
    directory: str,
    job: str,
    size: int,
    limit_bytes: int,
    *,
    window_bytes: int = WINDOW_BYTES,
    nodes: int = 1,
    node: int = 0,
    local: range | None = None,
) -> None:
    """Makes ``node.arena`` for ``size`` ranks; the job may use ``limit_bytes`` on this node.

    ``window_bytes``: size of each rank's input area; ``nodes``: the job's number of nodes;
    ``node``: the number of this node; ``local``: the ranks on this node, by default all.
    """
    here = range(size) if local is None else local
    place = (directory.encode(), job.encode(), size, nodes, node, here.start, len(here))
    abi.checked(abi.library().hvdft_create_node(*place, limit_bytes, window_bytes))


def create_rank(
    directory: str, job: str, rank: int, limit_bytes: int, *, window_bytes: int = WINDOW_BYTES
) -> None:
    """Makes ``rank-<rank>.arena``, with the same window as its node."""
    place = (directory.encode(), job.encode(), rank)
    abi.checked(abi.library().hvdft_create_rank(*place, limit_bytes, window_bytes))


class Agent:
    """The agent of ``rank``: its engine's thread and what it publishes about its worker."""

    def __init__(self, directory: str, job: str, rank: int, generation: int = 0) -> None:
        self._handle = abi.library().hvdft_agent_open(
            directory.encode(), job.encode(), rank, generation
        )
        if not self._handle:
            raise HvdFtError(abi.error())

    def start(self, rules: OpRules) -> None:
        given = ffi.new("hvdft_op_rules *", asdict(rules))
        abi.checked(abi.library().hvdft_agent_start(self._handle, given))

    def close(self) -> None:
        """Ends the engine's thread. No other thread may be in :meth:`wait`."""
        if self._handle:
            abi.library().hvdft_agent_close(self._handle)
            self._handle = None

    def ask_to_leave(self, ranks: Iterable[int]) -> None:
        """Asks that ranks leave the job, if they have not yet."""
        words = ffi.new("uint64_t[]", rank_words(ranks))
        abi.library().hvdft_agent_ask_to_leave(self._handle, words)

    def trace_ops(self) -> None:
        """Has rank 0's node know of this node's single ops (:meth:`Observer.op_moments`)."""
        abi.library().hvdft_agent_trace_ops(self._handle)

    def started(self, incarnation: int, pid: int) -> None:
        abi.library().hvdft_agent_started(self._handle, incarnation, pid)

    def failed(self, wait_status: int) -> None:
        abi.library().hvdft_agent_failed(self._handle, wait_status)

    def done(self, wait_status: int) -> None:
        abi.library().hvdft_agent_done(self._handle, wait_status)

    def fatal(self, exit_code: int, message: str) -> None:
        """Stops the job; of several messages the first counts."""
        abi.library().hvdft_agent_fatal(self._handle, exit_code, message.encode())

    def wait(self, seen_events: int, timeout_ms: int) -> WaitResult:
        return WaitResult(abi.library().hvdft_agent_wait(self._handle, seen_events, timeout_ms))

    def wake(self) -> None:
        """Ends :meth:`wait`; may be called from any thread."""
        abi.library().hvdft_agent_wake(self._handle)

    def worker_ended_orderly(self) -> bool:
        return bool(abi.library().hvdft_agent_orderly_exit(self._handle))

    def last_words(self) -> str:
        """The reason that the present incarnation gave for its failure; "" if it gave none."""
        text = ffi.new("char[]", abi.constant("HVDFT_LAST_WORDS"))
        abi.library().hvdft_agent_last_words(self._handle, text, len(text))
        return abi.text(text)

    def fatal_text(self) -> tuple[str, int, int] | None:
        """The message, exit code and rank of the job's stop; None if the job is not stopped."""
        text = ffi.new("char[]", abi.constant("HVDFT_STOP_TEXT"))
        code, rank = ffi.new("int *"), ffi.new("int *")
        if not abi.library().hvdft_agent_fatal_text(self._handle, text, len(text), code, rank):
            return None
        return abi.text(text), int(code[0]), int(rank[0])

    @property
    def event_count(self) -> int:
        return int(abi.library().hvdft_agent_event_count(self._handle))
