"""Brings nodes without arenas back into a job, at the beginning of a generation.

A new node copies the log, with the results of its ops, from the node with the longest one. The op
that was under way is done over by all nodes (csrc/protocol/rejoin.h). All of that is done before
any engine or leader runs, so nothing changes meanwhile but what living workers publish.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict

from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.rendezvous import Rendezvous
from hvd_ft.errors import HvdFtError
from hvd_ft.native import rejoin as native
from hvd_ft.native.rejoin import NodeState, Rejoining, Verdict
from hvd_ft.system.byte_size import in_words
from hvd_ft.system.say import say

_BATCH_BYTES = 16 << 20  # between two signs of life


def rejoin(rendezvous: Rendezvous, context: JobContext, fresh: Sequence[int]) -> None:
    """Fills the arenas of new nodes, and prepares all for the op that is done over. Collective.

    Args:
        rendezvous: of all agents.
        context: this agent's place in the job.
        fresh: the nodes whose arenas were just made.

    Raises:
        HvdFtError: no arena is left, or one has no room.
    """
    if len(context.nodes) == 1:
        return
    with contextlib.ExitStack() as stack:
        _Rejoin(rendezvous, context, stack).run(fresh)


class _Rejoin:
    def __init__(
        self, rendezvous: Rendezvous, context: JobContext, stack: contextlib.ExitStack
    ) -> None:
        self._rendezvous = rendezvous
        self._context = context
        self._firsts = context.nodes.firsts[:-1]
        self._node = context.nodes.node_of(rendezvous.rank)
        self._mine: Rejoining | None = None  # of this node, in its first agent

        def find() -> None:
            if rendezvous.rank in self._firsts:
                self._mine = Rejoining(context.arenas, context.job)
                stack.callback(self._mine.close)

        rendezvous.agree("opening the nodes' arenas", find)

    def run(self, fresh: Sequence[int]) -> None:
        if self._mine and self._node in fresh:
            self._mine.lose()
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
        for node in lost:
            self._copy(plan.log_from, node, states)
        everywhere = range(len(states))
        self._at(everywhere, "noting the op that is done over", lambda mine: mine.note(plan.op))
        for node, state in enumerate(states):
            begin = states[plan.log_from] if state.lost else state
            self._take_results(plan, node, begin.op)
        term, mark = max(s.term for s in states), max(s.mark for s in states)
        self._at(everywhere, "resuming", lambda mine: mine.resume(plan.op, term, mark))
        self._agree_on_events(lost)

    def _states(self) -> list[NodeState]:
        mine = asdict(self._mine.look()) if self._mine else None
        told = self._rendezvous.exchange("what the nodes' arenas have", mine)
        return [NodeState(**told[first]) for first in self._firsts]

    def _copy(self, source: int, dest: int, states: Sequence[NodeState]) -> None:
        """Fills a new node's arena from another's."""
        complete = states[source].op
        gives, takes = self._place(source), self._place(dest)
        told = self._rendezvous.exchange(
            "what a new node copies",
            [gives.head().hex(), gives.ranges(complete)] if gives else None,
        )
        head, ranges = told[self._firsts[source]]
        head = bytes.fromhex(head)
        size = sum(size for _, size in ranges)
        if takes:
            say(
                f"this host is new in the job; it copies {in_words(size)} from that of rank "
                f"{self._firsts[source]}"
            )
        self._at([dest], "making room", lambda mine: mine.make_room(head))
        place = gives or takes
        views = [place.stretch(*stretch) for stretch in ranges] if place else []
        self._pass_on("copying the log", source, dest, [size for _, size in ranges], views)
        generation = self._context.settings.generation
        self._at([dest], "adopting it", lambda mine: mine.adopt(head, generation))

    def _take_results(self, plan: Verdict, dest: int, begin: int) -> None:
        """Gives a node the results of the ops from `begin` on that are complete elsewhere."""
        if begin >= plan.op:
            return
        place = self._place(plan.results_from) or self._place(dest)

        def find() -> list[int]:
            views = [place.result(op) for op in range(begin, plan.op)] if place else []
            return [view.nbytes for view in views]

        told = self._rendezvous.agree("finding results", find)
        sizes = told[self._firsts[plan.results_from]]
        views = [place.result(op) for op in range(begin, plan.op)] if place else []
        self._pass_on("copying results", plan.results_from, dest, sizes, views)

    def _pass_on(
        self,
        what: str,
        source: int,
        dest: int,
        sizes: Sequence[int],
        views: Sequence[memoryview],
    ) -> None:
        """Copies stretches of memory from one node to another; the others wait. Collective."""
        batch = 0
        for number, size in enumerate(sizes):
            for at in range(0, size, _BATCH_BYTES):
                end = min(at + _BATCH_BYTES, size)
                if self._place(source):
                    self._rendezvous.send(what, self._firsts[dest], views[number][at:end])
                elif self._place(dest):
                    self._rendezvous.receive(what, self._firsts[source], views[number][at:end])
                batch += end - at
                if batch >= _BATCH_BYTES:
                    self._rendezvous.exchange(what, None)
                    batch = 0
        self._rendezvous.exchange(what, None)

    def _agree_on_events(self, lost: Sequence[int]) -> None:
        states = self._states()
        for node, state in enumerate(states):
            if self._mine and (node in lost or self._node in lost):
                self._mine.heard(self._firsts[node], state.events)

    def _at(self, nodes: Sequence[int], what: str, act: Callable[[Rejoining], None]) -> None:
        """Has the first agents of some nodes do something."""
        mine = self._mine if self._node in nodes else None
        self._rendezvous.agree(what, lambda: act(mine) if mine else None)

    def _place(self, node: int) -> Rejoining | None:
        """Returns the arena of a node in its first agent, None elsewhere."""
        return self._mine if node == self._node else None
