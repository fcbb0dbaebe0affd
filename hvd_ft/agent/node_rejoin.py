"""Brings nodes without arenas back into a job, at the beginning of a generation.

A new node copies the log, with the results of its ops, from the node with the longest one, and gets
the snapshots of its ranks. All nodes repeat the op that was in flight (csrc/protocol/rejoin.h).
All this happens before any engine or leader runs, so meanwhile only living workers change anything.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.lost_snapshots import bring_back
from hvd_ft.agent.node_channel import NodeChannel
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.errors import HvdFtError
from hvd_ft.native import rejoin as native
from hvd_ft.native.rejoin import NodeState, Rejoining, Verdict
from hvd_ft.system.byte_size import in_words
from hvd_ft.system.say import say


def rejoin(rendezvous: Rendezvous, context: JobContext, fresh: Sequence[int]) -> None:
    """Fills the arenas of new nodes, and prepares all nodes to do the op over. Collective.

    Args:
        rendezvous: of all agents.
        context: this agent's place in the job.
        fresh: the nodes whose arenas were just made.

    Raises:
        HvdFtError: needed data no longer exists anywhere, or there is no room for it.
    """
    if len(context.nodes) == 1:
        return
    with ExitStack() as stack:
        _Rejoin(rendezvous, context, stack).run(fresh)


class _Rejoin:
    def __init__(self, rendezvous: Rendezvous, context: JobContext, stack: ExitStack) -> None:
        self._context = context
        self._channel = NodeChannel(rendezvous, context.nodes)
        self._all = range(len(context.nodes))
        self._opened: list[Rejoining] = []

        def find() -> None:
            mine = Rejoining(context.arenas, context.job)
            self._opened.append(mine)
            stack.callback(mine.close)

        self._channel.at(self._all, "opening the nodes' arenas", find)

    @property
    def _mine(self) -> Rejoining:
        """This node's arena; only in its first agent."""
        return self._opened[0]

    def run(self, fresh: Sequence[int]) -> None:
        channel = self._channel
        channel.at(fresh, "marking new arenas", self._lose)
        states = self._states()
        plan = native.verdict(states)
        if not plan.needed:
            return
        if not plan.possible:
            raise HvdFtError(
                "no host of this job has its state any more: start the job again, "
                "from its last checkpoint if it has one"
            )
        lost = [node for node, state in enumerate(states) if state.lost]
        if lost:
            self._check_messages()
        for node in lost:
            self._copy(plan.log_from, node, states)
        channel.at(self._all, "noting the op that is done over", lambda: self._mine.note(plan.op))
        if lost:
            self._renew(lost, plan.log_from)
        for node in lost:
            self._bring_back_snapshots(node, lost, states[plan.log_from])
        for node, state in enumerate(states):
            begin = states[plan.log_from] if state.lost else state
            self._take_results(plan, node, begin.op)
        term, mark = max(s.term for s in states), max(s.mark for s in states)
        channel.at(self._all, "resuming", lambda: self._mine.resume(plan.op, term, mark))
        self._agree_on_events(lost)

    def _lose(self) -> None:
        self._mine.lose()

    def _states(self) -> list[NodeState]:
        told = self._channel.at(
            self._all, "what the nodes' arenas have", lambda: asdict(self._mine.look())
        )
        return [NodeState(**state) for state in told]

    def _check_messages(self) -> None:
        """Refuses a job with messages, as nobody knows which messages a lost rank had sent."""
        directory = Path(self._context.arenas)
        told = self._channel.at(
            self._all, "looking for messages", lambda: any(directory.glob("messages-*.log"))
        )
        if any(told):
            raise HvdFtError(
                "ranks of this job have sent messages to each other (hvd_ft.p2p), and those of a "
                "lost host cannot be brought back: start the job again, from its last checkpoint "
                "if it has one"
            )

    def _copy(self, source: int, dest: int, states: Sequence[NodeState]) -> None:
        """Fills a new node's arena from another's."""
        channel = self._channel
        told = channel.at(
            [source],
            "what a new node copies",
            lambda: [
                self._mine.head().hex(),
                self._mine.ranges(states[source].op),
                time.monotonic_ns(),
            ],
        )
        ahead_ns = time.monotonic_ns() - told[source][2]
        head, ranges = bytes.fromhex(told[source][0]), told[source][1]
        if channel.is_at(dest):
            size = in_words(sum(size for _, size in ranges))
            say(
                f"this host is new in the job; it copies {size} from that of rank "
                f"{channel.firsts[source]}"
            )
        channel.at([dest], "making room", lambda: self._mine.make_room(head))
        channel.pass_on(
            "copying the log",
            source,
            dest,
            [size for _, size in ranges],
            [self._mine.stretch(*stretch) for stretch in ranges]
            if self._ends(source, dest)
            else [],
        )
        generation = self._context.launch.generation
        channel.at([dest], "adopting the log", lambda: self._mine.adopt(head, generation, ahead_ns))

    def _renew(self, lost: Sequence[int], log_from: int) -> None:
        """Lets all nodes record which ranks of new nodes continue, return or stay out of the job.

        Rank 0's node knows of every roster that is announced. A rank that had ended is started
        again if its input to the op that is done over is lost.
        """
        nodes, launch = self._context.nodes, self._context.launch
        ranks = [rank for node in lost for rank in nodes.ranks(node)]
        judge = log_from if 0 in lost else 0

        def decide() -> list[int]:
            return [self._mine.renewal(rank, launch.leaves(rank)) for rank in ranks]

        told = self._channel.at([judge], "looking for ranks that return", decide)[judge]

        def note() -> None:
            for rank, renewal in zip(ranks, told, strict=True):
                self._mine.renew(rank, renewal)

        self._channel.at(self._all, "noting which ranks return", note)

    def _bring_back_snapshots(self, node: int, lost: Sequence[int], left: NodeState) -> None:
        buddy = 1 if node == 0 else 0
        if buddy not in lost:
            mine = self._opened[0] if self._opened else None
            others = [other for other in self._all if other not in (buddy, *lost)]
            ranks = self._context.nodes.ranks(node)
            bring_back(self._channel, mine, ranks, node, [buddy, *others])
        elif left.dropped:  # ops that its ranks would have to do again
            first = self._channel.firsts
            raise HvdFtError(
                f"the host of rank {first[node]} was lost together with that of rank "
                f"{first[buddy]}, which kept a copy of the former host's state: "
                "start the job again, from its last checkpoint if it has one"
            )

    def _take_results(self, plan: Verdict, dest: int, begin: int) -> None:
        """Gives a node the results of the ops from `begin` on that are complete elsewhere."""
        if begin >= plan.op:
            return
        source = plan.results_from

        def results() -> list[memoryview]:
            return [self._mine.result(op) for op in range(begin, plan.op)]

        told = self._channel.at(
            [source, dest], "finding results", lambda: [view.nbytes for view in results()]
        )
        views = results() if self._ends(source, dest) else []
        self._channel.pass_on("copying results", source, dest, told[source], views)

    def _ends(self, source: int, dest: int) -> bool:
        return self._channel.is_at(source) or self._channel.is_at(dest)

    def _agree_on_events(self, lost: Sequence[int]) -> None:
        """Records that new nodes know the others' events, and the others those of new nodes."""
        events = [state.events for state in self._states()]

        def note() -> None:
            for node, first in enumerate(self._channel.firsts):
                if node in lost or self._channel.node in lost:
                    self._mine.heard(first, events[node])

        self._channel.at(self._all, "noting what is known of events", note)
