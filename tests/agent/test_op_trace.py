"""What is read of a rank's latest ops, and what is missed, whenever somebody looks."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hvd_ft.agent.op_trace import OpReader, OpTrace, note_of
from hvd_ft.native.observer import OPS_KEPT
from hvd_ft.native.types import OpMoments, State, Status


class Ring:
    """A rank's latest ops, as op_times.h keeps them."""

    def __init__(self) -> None:
        self.places: dict[int, OpMoments] = {}

    def begin(self, op: int) -> None:
        self.places[op % OPS_KEPT] = OpMoments(op, op * 10 + 1, op * 10 + 3)

    def end(self, op: int) -> None:
        self.places[op % OPS_KEPT] = OpMoments(
            op, op * 10 + 1, op * 10 + 3, op * 10 + 4, 10 * op + 8
        )

    def run(self, ops: range) -> None:
        for op in ops:
            self.end(op)

    @property
    def found(self) -> dict[int, OpMoments]:
        return {each.op: each for each in self.places.values()}


def ids(ops: list[OpMoments]) -> list[int]:
    return [each.op for each in ops]


def test_each_op_is_read_once_when_it_has_ended() -> None:
    ring, reader = Ring(), OpReader()
    assert reader.read(ring.found) == []
    ring.run(range(3))
    ring.begin(3)
    assert ids(reader.read(ring.found)) == [0, 1, 2]
    assert reader.read(ring.found) == []
    ring.end(3)
    ring.run(range(4, 3 + OPS_KEPT))
    assert ids(reader.read(ring.found)) == [*range(3, 3 + OPS_KEPT)]
    assert reader.missed == 0


def test_overwritten_ops_are_counted() -> None:
    ring, reader = Ring(), OpReader()
    ring.run(range(10))
    ring.begin(10)
    reader.read(ring.found)
    ring.run(range(10, 10 + 3 * OPS_KEPT))
    assert ids(reader.read(ring.found)) == [*range(10 + 2 * OPS_KEPT, 10 + 3 * OPS_KEPT)]
    assert reader.missed == 2 * OPS_KEPT


def test_an_op_that_was_seen_under_way_and_is_gone_is_missed() -> None:
    ring, reader = Ring(), OpReader()
    ring.run(range(4))
    ring.begin(4)
    ring.begin(5)
    reader.read(ring.found)
    del ring.places[4]  # its entry is being written
    reader.read(ring.found)
    ring.run(range(5, 5 + OPS_KEPT))
    reader.read(ring.found)
    assert reader.missed == 1


def test_ops_without_a_part_of_the_rank_are_not_missed() -> None:
    ring, reader = Ring(), OpReader()
    read = []
    for op in range(0, 5 * OPS_KEPT, 3):
        ring.end(op)
        read += ids(reader.read(ring.found))
    assert read == [*range(0, 5 * OPS_KEPT, 3)]
    assert reader.missed == 0


def test_an_op_that_is_read_while_the_rank_goes_on_is_not_passed_over() -> None:
    """A reading is no moment: it may have op 5 and not yet op 4."""
    ring, reader = Ring(), OpReader()
    ring.run(range(6))
    whole = ring.found
    assert ids(reader.read({op: each for op, each in whole.items() if op != 4})) == [0, 1, 2, 3, 5]
    assert ids(reader.read(whole)) == [4]


def test_a_rank_that_replays_ops_does_not_have_them_twice() -> None:
    ring, reader = Ring(), OpReader()
    ring.run(range(100))
    assert len(reader.read(ring.found)) == OPS_KEPT
    ring.begin(100)
    reader.read(ring.found)
    missed = reader.missed
    for op in range(30, 100):
        ring.end(op)
        assert reader.read(ring.found) == []
    ring.end(100)
    assert ids(reader.read(ring.found)) == [100]
    assert reader.missed == missed


def test_a_later_agent_does_not_count_what_another_one_has_read() -> None:
    ring, reader = Ring(), OpReader(late=True)
    ring.run(range(1000, 1010))
    assert ids(reader.read(ring.found)) == [*range(1000, 1010)]
    ring.run(range(1010, 1010 + OPS_KEPT))
    assert ids(reader.read(ring.found)) == [*range(1010, 1010 + OPS_KEPT)]
    assert reader.missed == 0
    ring.run(range(1010 + OPS_KEPT, 1011 + 2 * OPS_KEPT))
    reader.read(ring.found)
    assert reader.missed == 1


@given(st.lists(st.integers(0, 3 * OPS_KEPT), max_size=20), st.integers(0, 5))
def test_every_op_is_read_or_missed(between: list[int], under_way: int) -> None:
    ring, reader = Ring(), OpReader()
    read: list[int] = []
    at = 0
    for more in between:
        ring.run(range(at, at + more))
        at += more
        for op in range(at, at + under_way):
            ring.begin(op)
        read += ids(reader.read(ring.found))
    ring.run(range(at, at + under_way))
    read += ids(reader.read(ring.found))
    assert sorted(set(read)) == sorted(read)
    assert len(read) + reader.missed == at + under_way
    if all(more + under_way <= OPS_KEPT for more in between):
        assert reader.missed == 0


def test_a_line_has_times_since_its_first_op_began() -> None:
    ops = [OpMoments(7, 90, 100, 110, 150), OpMoments(8, 0, 120, 0, 160)]
    assert note_of(ops) == {"time_ns": 100, "ops": [[7, 0, 10, 10, 50], [8, 20, None, None, 40]]}


def test_a_trace_writes_a_line_a_rank_and_says_what_is_missing() -> None:
    rings = {of: Ring() for of in [(0, False), (1, False), (2, False), (0, True), (2, True)]}
    observer: Any = SimpleNamespace(
        size=3,
        op_moments=lambda rank, of_ring: rings[rank, of_ring].found,
        status=lambda rank: Status(State.RUNNING, 1, rank, 0, 0, 0, 0),
    )
    written: list[Any] = []
    said: list[str] = []
    trace = OpTrace(observer, [0, 2], write=written.append, say=said.append, late=False)
    rings[1, False].run(range(1))
    trace.read()
    trace.read()
    rings[2, True].run(range(3))
    trace.read()
    told = [(line["type"], line["rank"], line["time_ns"], len(line["ops"])) for line in written]
    assert told == [("OPS", 1, 3, 1), ("RING", 2, 3, 3)]
    rings[2, False].run(range(OPS_KEPT + 5))
    rings[2, True].run(range(3, OPS_KEPT + 4))
    trace.finish()
    assert [(line["type"], line["rank"]) for line in written[2:]] == [("OPS", 2), ("RING", 2)]
    assert said == [
        "--trace-ops: up to 6 ops are missing in the report, because later ones overwrote them "
        "before they were read (5 of rank 2, 1 of rank 2 in the ring): it keeps up with 1280 ops "
        "a second"
    ]
    trace = OpTrace(observer, [0, 2], write=written.append, say=said.append, late=True)
    trace.finish()
    assert len(said) == 1, "nothing is missing"
