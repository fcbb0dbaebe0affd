"""Placements, predictions and the model of the locality experiment."""

from dataclasses import replace

import pytest

from experiments.locality import fit
from experiments.locality.extrapolate import (
    RDMA,
    TCP,
    gather_seconds,
    halving_seconds,
    large_ring_seconds,
    lost_to_deaths,
    lost_to_restarts,
    ring_is_level_at,
)
from experiments.locality.fluid import Resource, Simulation
from experiments.locality.placements import parse, parse_list
from experiments.locality.predictions import verdicts
from experiments.locality.ring_model import (
    Machine,
    allreduce,
    hierarchical_seconds,
    ring_seconds,
    seconds_of,
)
from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import host_list

SLOW = Machine(link=1e6, wire=1e-12, memory=1e-12, add=1e-12)  # links are the only limit


def test_a_ring_uses_the_network_at_once_where_nodes_have_even_numbers_of_ranks() -> None:
    assert all(parse(text).crosses_at_once for text in ("4-2-2", "2-4-2", "2-2-4"))
    mixed = ("4-3-1", "6-1-1", "3-3-2", "5-2-1", "3-2-3", "round-robin:4-2-2")
    assert not any(parse(text).crosses_at_once for text in mixed)


def test_a_placement_has_the_ranks_of_a_node_together_or_deals_them_in_turn() -> None:
    assert parse("4-3-1").nodes == (0, 0, 0, 0, 1, 1, 1, 2)
    assert parse("round-robin:4-2-2").nodes == (0, 1, 2, 0, 1, 2, 0, 0)
    assert host_list(parse("4-3-1").hosts(["a", "b", "c"])) == "a:4,b:3,c:1"
    dealt = parse("round-robin:4-2-2").hosts(["a", "b", "c"])
    assert host_list(dealt) == "a:1,b:1,c:1,a:1,b:1,c:1,a:2"
    assert [placement.text for placement in parse_list("2-1,round-robin:1-2")] == [
        "2-1",
        "round-robin:1-2",
    ]


@pytest.mark.parametrize("text", ["", "4-", "4-0-1", "round-robin:", "robin:4-2", "4-2,4-x"])
def test_what_is_no_placement_is_an_error(text: str) -> None:
    with pytest.raises(HvdFtError, match=r"is not a placement.*round-robin:4-3-1"):
        parse_list(text)


def test_placements_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(HvdFtError, match="different numbers of ranks"):
        parse_list("4-2,4-3")
    with pytest.raises(HvdFtError, match="is there twice"):
        parse_list("4-2,4-2")


def test_a_prediction_holds_or_does_not_by_the_ratio_of_medians() -> None:
    measured = {
        (8, "serial", "4-2-2"): [1.0, 1.1, 9.0],
        (8, "serial", "6-1-1"): [1.9],
        (8, "serial", "3-3-2"): [1.9],
        (8, "hierarchical", "6-1-1"): [1.0],
    }
    found = list(verdicts(measured))
    assert [(v.placement, v.held) for v in found] == [("3-3-2", False), ("6-1-1", True)]
    assert found[1].ratio == pytest.approx(1.9 / 1.1)


def run_flows(flows: list[tuple[float, dict[Resource, float]]]) -> list[float]:
    """Returns when each flow ends."""
    sim, ends = Simulation(), [0.0] * len(flows)
    for i, (amount, uses) in enumerate(flows):
        sim.flow(amount, uses, lambda i=i: ends.__setitem__(i, sim.now))
    sim.run()
    return ends


def test_flows_share_what_they_need() -> None:
    one, other = Resource(10), Resource(4)
    # The second gets 4 of its own link; the first what that leaves of theirs, and all at the end.
    assert run_flows([(60, {one: 1}), (40, {one: 1, other: 1})]) == pytest.approx([10, 10])
    one, other = Resource(10), Resource(4)
    assert run_flows([(100, {one: 1}), (40, {one: 1, other: 1})]) == pytest.approx([14, 10])
    cpus, thread = Resource(2), Resource(1)
    assert run_flows([(3, {cpus: 1, thread: 1})]) == pytest.approx([3])
    cpus = Resource(2)
    assert run_flows([(3, {cpus: 1, Resource(1): 1}) for _ in range(4)]) == pytest.approx([6] * 4)


def test_an_idle_link_lets_its_burst_pass_at_once() -> None:
    sim, link, ends = Simulation(), Resource(10, burst=20), []

    def send() -> None:
        sim.flow(50, {link: 1}, lambda: ends.append(sim.now))

    send()
    sim.after(4, send)  # idle for 1 s, in which 10 have been saved
    sim.after(20, send)  # for long: not more than its burst
    sim.run()
    assert ends == pytest.approx([3, 8, 23])


@pytest.mark.parametrize("side", ["irecv_send_wait", "threads", "endpoints", "one endpoint"])
@pytest.mark.parametrize("placement", ["4-2-2", "4-3-1", "6-1-1", "3-3-2"])
def test_where_links_are_the_limit_a_ring_takes_what_they_need(side: str, placement: str) -> None:
    seconds = seconds_of(SLOW, side, parse(placement).nodes, 8e6)
    assert seconds == pytest.approx(14, rel=0.02)
    alone = seconds_of(SLOW, "serial", parse(placement).nodes, 8e6)
    assert alone == pytest.approx(14 if placement in ("4-2-2", "3-3-2") else 28, rel=0.02)


def test_a_ring_in_round_robin_order_takes_twice_as_long_unless_it_orders_itself() -> None:
    nodes = parse("round-robin:4-2-2").nodes
    for side in ("serial", "irecv_send_wait", "endpoints", "one endpoint"):
        assert seconds_of(SLOW, side, nodes, 8e6) == pytest.approx(28, rel=0.02)
    assert seconds_of(SLOW, "by host", nodes, 8e6) == pytest.approx(14, rel=0.02)


def test_only_the_number_of_nodes_matters_to_a_hierarchical_allreduce() -> None:
    for placement in ("4-2-2", "6-1-1", "round-robin:4-2-2"):
        seconds = hierarchical_seconds(SLOW, parse(placement).nodes, 6e6)
        assert seconds == pytest.approx(4 / 3 * 6, rel=0.01)
    slow_cpus = replace(SLOW, stage=1e-6)  # of 4 ranks two can work at a time
    seconds = hierarchical_seconds(slow_cpus, parse("4-1").nodes, 6e6)
    assert 12 < seconds < 12 + 6.5
    # What a node sends first it has to have: 0.1 s for its input, and 0.2 s on the link twice.
    late = replace(SLOW, stage=5e-7)
    assert hierarchical_seconds(late, (0, 1), 400e3) == pytest.approx(0.5, rel=0.01)
    assert hierarchical_seconds(replace(SLOW, start=5), (0, 1), 2e6) == pytest.approx(7, rel=0.2)


def test_messages_cost_their_overhead_and_latency() -> None:
    fast = Machine(link=1e9, wire=1e-12, memory=1e-12, add=1e-12)
    nodes = (0, 1, 2, 3)
    bare = ring_seconds(fast, "endpoints", nodes, allreduce(4, 4e3))
    far = ring_seconds(replace(fast, latency=1e-3), "endpoints", nodes, allreduce(4, 4e3))
    assert far - bare == pytest.approx(6e-3, rel=0.01)
    busy = ring_seconds(replace(fast, overhead=1e-3), "endpoints", nodes, allreduce(4, 4e3))
    assert busy - bare == pytest.approx(12e-3, rel=0.01)
    late = ring_seconds(replace(fast, handoff=1e-3), "irecv_send_wait", nodes, allreduce(4, 4e3))
    assert late == pytest.approx(6e-3, rel=0.02)
    # A thread for both directions cannot do the two at a time.
    slow = Machine(link=1e12, wire=1e-9, memory=1e-9, add=1e-12, cpus=8)
    one, two = (
        ring_seconds(slow, side, nodes, allreduce(4, 64e6))
        for side in ("one endpoint", "endpoints")
    )
    assert one / two == pytest.approx(2, rel=0.1)
    # Nor can threads that share CPUs.
    shared = replace(slow, cpus=2, shared=True)
    assert ring_seconds(shared, "endpoints", nodes, allreduce(4, 64e6)) > 3.5 * two


def test_rings_side_by_side_share_links_but_not_threads() -> None:
    slow = Machine(link=1e12, wire=1e-9, memory=1e-9, add=1e-12, cpus=64)
    one, four = (
        ring_seconds(slow, "endpoints", (0, 1, 2, 3), allreduce(4, 64e6), rings) for rings in (1, 4)
    )
    assert one / four == pytest.approx(4, rel=0.15)
    one, four = (
        ring_seconds(SLOW, "endpoints", (0, 1, 2, 3), allreduce(4, 64e6), rings) for rings in (1, 4)
    )
    assert one / four == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("side", ["endpoints", "one endpoint", "serial"])
def test_a_large_ring_is_told_from_the_steps_of_a_small_one(side: str) -> None:
    members, size = 20, 28e6
    direct = ring_seconds(TCP, side, range(members), allreduce(members, size))
    assert large_ring_seconds(TCP, side, (0, 1, 2, 3), members, size) == pytest.approx(
        direct, rel=0.03
    )
    few = ring_seconds(TCP, side, range(8), allreduce(8, 4e6))
    assert large_ring_seconds(TCP, side, tuple(range(8)), 8, 4e6) == few


def test_a_ring_loses_to_a_tree_below_a_size_that_grows_with_its_nodes() -> None:
    sizes = [ring_is_level_at(RDMA, nodes) for nodes in (16, 256)]
    assert 4 * sizes[0] < sizes[1]
    for nodes, size in zip((16, 256), sizes, strict=True):
        ring = large_ring_seconds(RDMA, "endpoints", (0, 1, 2, 3), nodes, size)
        assert ring / halving_seconds(RDMA, nodes, size) == pytest.approx(1.1, rel=0.1)
    assert gather_seconds(RDMA, 16, 100) < halving_seconds(RDMA, 16, 100)
    assert gather_seconds(RDMA, 16, 1e6) > halving_seconds(RDMA, 16, 1e6)


def test_what_deaths_cost() -> None:
    assert lost_to_deaths(99.0, 1.0) == pytest.approx(0.01)
    # 200 s between checkpoints of 2 s: 1 % to write them, and 100 s of work per death.
    assert lost_to_restarts(1e4, 0.0, 2.0) == pytest.approx(0.02)
    assert lost_to_restarts(1e4, 100.0, 2.0) == pytest.approx(0.03)


def test_a_fit_finds_the_machine_that_made_the_figures() -> None:
    truth = replace(fit.START, handoff=40e-3)
    made = [
        fit.Measured("placements", "50mbit", placement, 8_000_000, side, 1.0, 1.0)
        for placement in ("4-2-2", "4-3-1", "6-1-1")
        for side in ("serial", "hierarchical")
    ]
    made = [replace(cell, seconds=fit.predicted(truth, cell)) for cell in made]
    assert [cell.fits for cell in made] == [True, False, True, False, False, False]
    found = fit.fitted(made)
    assert found.handoff == pytest.approx(truth.handoff, rel=0.1)
    assert all(abs(fit.error(found, cell)) < 0.02 for cell in made)


def test_cells_are_of_what_the_model_knows() -> None:
    key = ("placements", "50mbit", "4-2-2", 8_000_000)
    measured = {
        (*key, "serial"): [1.0, 2.0, 9.0],
        (*key, "mpi"): [1.0],
        ("links", "1gbit", "1-1-1", 64_000_000, "endpoints"): [1.0],
        ("sizes", "1gbit", "4-2-2", 65536, "endpoints"): [1.0],
    }
    [cell] = fit.cells(measured)
    assert (cell.side, cell.seconds, cell.median) == ("serial", 1.0, 2.0)
    assert cell.limited_by_links
