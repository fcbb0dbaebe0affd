"""The wire of experiments/endpoints: its model of links and connections."""

import pytest

from experiments.endpoints.wire import Model, Traffic, flow_of

MBIT = 1e6


@pytest.mark.parametrize(
    ("model", "arrivals"),
    [
        # Host 0 sends 1 Mbit to 1 twice, over connections a and b, 1 sends one to 0, 2 one to 1.
        (Model(delay=0.5), [0.5, 0.5, 0.5, 0.5]),
        (Model(rate=MBIT), [1, 2, 1, 3]),  # 1's link is a pipe into which 0 and 2 send
        (Model(rate=MBIT, cables=True), [1, 2, 1, 1]),
        (Model(flow_rate=MBIT), [1, 1, 1, 1]),
        (Model(rate=2 * MBIT, flow_rate=MBIT, delay=1), [2.5, 3, 2.5, 3.5]),
    ],
)
def test_the_wire_of_endpoints_limits_links_and_connections(
    model: Model, arrivals: list[float]
) -> None:
    traffic, size = Traffic(model), 125_000
    sent = [(0, 1, "a"), (0, 1, "b"), (1, 0, "c"), (2, 1, "d")]
    assert [traffic.arrival(0.0, *way, size) for way in sent] == arrivals


def test_the_wire_of_endpoints_tells_connections_apart() -> None:
    header = bytes(10)
    ip = bytes([0x46]) + bytes(8) + bytes([6]) + bytes(2) + bytes([10, 214, 0, 2, 10, 214, 0, 1])
    options = bytes(4)
    assert flow_of(header + ip + options + bytes([1, 2, 3, 4])) == (2, 1, 0x102, 0x304)
    assert flow_of(header + ip[:9] + bytes([17]) + ip[10:] + options) == (2, 1, 0, 0)
