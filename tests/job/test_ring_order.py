"""The order of a ring's members, and of a job's hosts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_ft.job.ring_order import by_host, edges_across, host_order, why_ordered
from hvd_ft.members.hosts import Host, host_list, parse_hosts
from hvd_ft.members.membership import Membership
from hvd_ft.tools.check.hosts import describe_order


def test_members_of_a_host_follow_each_other() -> None:
    assert by_host("abab") == [0, 2, 1, 3]
    assert by_host("baab") == [0, 3, 1, 2]  # hosts keep the order of their first members
    assert by_host("aabb") == [0, 1, 2, 3]
    assert by_host("") == []


def test_edges_between_hosts_are_counted_and_so_is_the_one_that_closes_the_ring() -> None:
    assert [edges_across(hosts) for hosts in ("a", "aaa", "ab", "aab", "abab", "abca")] == [
        *(0, 0, 2, 2, 4, 3)
    ]


@given(st.lists(st.sampled_from("abcd"), max_size=12))
def test_no_order_has_fewer_edges_between_hosts(hosts: list[str]) -> None:
    order = by_host(hosts)
    assert sorted(order) == list(range(len(hosts)))
    ordered = [hosts[member] for member in order]
    used = len(set(hosts))
    assert edges_across(ordered) == (used if used > 1 else 0) <= edges_across(hosts)
    assert by_host(ordered) == list(range(len(hosts)))
    assert (why_ordered(hosts) == "") == (edges_across(hosts) == edges_across(ordered))


def ordered(text: str, size: int) -> tuple[str, str]:
    hosts, why = host_order(parse_hosts(text, size), size)
    return host_list(hosts), why


def test_hosts_that_are_named_several_times_are_put_together() -> None:
    hosts, why = ordered("n0:1,n1:1,n0:1,n1:1", 4)
    assert hosts == "n0:2,n1:2"
    assert why == (
        "ranks are ordered by host, n0:2,n1:2: in the given order 4 of 4 edges of a ring would "
        "cross the network, by host only 2"
    )
    assert ordered("n0:4,n1:2", 6) == ("n0:4,n1:2", "")
    assert ordered("n0,n0,n1", 3)[1].endswith(": a host is named more than once")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1), st.data())
def test_every_host_gets_the_ranks_that_it_would_have_had(
    given_hosts: list[tuple[str, int]], data: st.DataObject
) -> None:
    hosts = [Host(name, slots) for name, slots in given_hosts]
    slots = [host.name for host in hosts for _ in range(host.slots)]
    size = data.draw(st.integers(1, len(slots)))
    places = Membership.first(host_order(hosts, size)[0], size).places
    assert {place.host: place.size for place in places} == {
        name: slots[:size].count(name) for name in slots[:size]
    }


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("n0:2,n1:2", "the order of n0:2,n1:2: 2 of 4 edges of a ring cross the network"),
        ("n0:1,n1:1,n0:1,n1:1", "in the given order 4 of 4 edges"),
    ],
)
def test_check_says_what_an_order_means(text: str, part: str) -> None:
    assert part in describe_order(text) and "\n" not in describe_order(text)
