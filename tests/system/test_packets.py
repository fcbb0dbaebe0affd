"""Packets between a process that must not wait and one that may be stopped."""

import pytest

from hvd_ft.system.packets import MOST_BYTES, Packets, packet_pair

pytestmark = pytest.mark.timeout(60)  # whoever waits after all is noticed


@pytest.fixture
def ends() -> tuple[Packets, Packets]:
    one, other = packet_pair()
    return Packets(one), Packets(other)


def test_packets_arrive_whole_and_in_order(ends: tuple[Packets, Packets]) -> None:
    one, other = ends
    assert other.receive() == b""
    assert one.send(b"a" * 70_000) and one.send(b"b") and other.send(b"c")
    assert [other.receive() for _ in range(3)] == [b"a" * 70_000, b"b", b""]
    assert one.receive() == b"c"
    one.close()
    assert other.receive() is None


def test_nobody_waits_for_a_reader_that_is_stopped(ends: tuple[Packets, Packets]) -> None:
    one, other = ends
    sent = 0
    while one.send(bytes(1000)):
        sent += 1
        assert sent < 100_000
    assert not one.send(b"more")
    assert len(other.receive() or b"") == 1000
    assert one.send(b"more")


def test_what_cannot_be_sent_is_dropped(ends: tuple[Packets, Packets]) -> None:
    one, other = ends
    assert one.send(bytes(MOST_BYTES))
    assert not one.send(bytes(MOST_BYTES + 1))
    assert len(other.receive() or b"") == MOST_BYTES
    other.close()
    assert not one.send(b"a")
    assert one.receive() is None
