"""Notes of other agents come into the report with their time on this host's clock."""

from types import SimpleNamespace
from typing import Any

import pytest

from hvd_ft.agent.rank_record import RankRecord
from hvd_ft.job.placement import Nodes

AHEAD_NS = {0: 0, 2: 1_000}  # by a node's first rank


@pytest.mark.parametrize(
    ("note", "time_ns"),
    [
        ({"rank": 1, "time_ns": 5}, 5),
        ({"rank": 2, "time_ns": 5}, 1_005),
        ({"rank": 3, "time_ns": 5}, 1_005),  # the node's clock, by its first rank
        ({"rank": 4, "time_ns": 5}, 5),  # nobody's
        ({"rank": "3", "time_ns": 5}, 5),
        ({"time_ns": 5}, 5),
    ],
)
def test_a_note_has_its_time_on_this_hosts_clock(note: dict[str, Any], time_ns: int) -> None:
    written: list[Any] = []
    observer: Any = SimpleNamespace(size=4, clock_ahead_ns=AHEAD_NS.__getitem__)
    journal: Any = SimpleNamespace(note=written.append)
    nodes = Nodes.of(["a", "a", "b", "b"])
    agent: Any = None
    record = RankRecord(
        0, agent, observer, nodes=nodes, journal=journal, send=lambda _: pytest.fail("sent")
    )
    record.take_note({"type": "STACKS", "text": "…", **note})
    assert written == [{"type": "STACKS", "text": "…", **note, "time_ns": time_ns}]


def test_ops_in_the_ring_are_traced_for_each_node_and_nobody_else() -> None:
    asked: set[tuple[int, bool]] = set()

    def op_moments(rank: int, *, of_ring: bool) -> dict[int, Any]:
        asked.add((rank, of_ring))
        return {}

    observer: Any = SimpleNamespace(size=4, op_moments=op_moments)
    agent: Any = SimpleNamespace(trace_ops=lambda: None)
    loop: Any = SimpleNamespace(timer=lambda _: SimpleNamespace(set=lambda _: None))
    journal: Any = SimpleNamespace(note=None)
    nodes = Nodes.of(["a", "a", "b", "b"])
    record = RankRecord(0, agent, observer, nodes=nodes, journal=journal, send=lambda _: None)
    record.trace_ops(loop, late=False)
    record.finish_trace()
    assert asked == {(0, False), (1, False), (2, False), (3, False), (0, True), (2, True)}
