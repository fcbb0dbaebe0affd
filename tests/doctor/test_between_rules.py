"""What is found between hosts: who is slower, whose clock is apart, who cannot be reached."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_ft.doctor.between_rules import (
    SLOWER,
    Clock,
    Link,
    Seen,
    Speed,
    below_median,
    compare,
    link_rates,
)
from hvd_ft.doctor.facts import HostFacts
from hvd_ft.doctor.finding import ERROR, WARNING


def ids(seen: Seen) -> list[tuple[str, str]]:
    return [(finding.id, finding.hosts[0]) for finding in compare(seen)]


def speeds(**cpus: float) -> Seen:
    return Seen(speeds={host: Speed(cpu, 10.0) for host, cpu in cpus.items()})


def test_the_slower_host_is_named_and_no_other() -> None:
    assert ids(speeds(n0=100, n1=74, n2=100)) == [("slower-cpu", "n1")]
    assert ids(speeds(n0=100, n1=76, n2=100)) == []
    assert ids(speeds(n0=100, n1=74)) == [("slower-cpu", "n1")]  # of two: against the other one
    assert ids(speeds(n0=100)) == []
    assert ids(speeds(n0=100, n1=10, n2=100, n3=10, n4=100)) == [
        ("slower-cpu", "n1"),
        ("slower-cpu", "n3"),
    ]
    one_is_fast = speeds(n0=100, n1=100, n2=900)
    assert ids(one_is_fast) == []
    memory = Seen(speeds={f"n{n}": Speed(1.0, 1.0 if n == 2 else 4.0) for n in range(3)})
    assert ids(memory) == [("slower-memory", "n2")]


@given(st.dictionaries(st.text(), st.floats(0.1, 1e6), max_size=9), st.floats(0.1, 1e6))
def test_hosts_that_are_alike_are_never_named(values: dict[str, float], scale: float) -> None:
    named = below_median(values)
    assert not named.keys() - values.keys()
    assert all(values[host] < SLOWER * usual for host, usual in named.items())
    assert len(named) <= len(values) - 1 or not values  # the fastest is not slower than the others
    even = dict.fromkeys(values, scale)
    assert below_median(even) == {}


def test_a_cause_that_the_host_tells_is_told() -> None:
    slow = {"n0": Speed(8.0, 9.0), "n1": Speed(1.0, 9.0, 0.8), "n2": Speed(8.0, 9.0)}
    [found] = compare(Seen(speeds=slow))
    assert "stopped it for 80%" in found.what
    assert found.remedy.startswith("raise the limit: docker run --cpus")


def ring(*names: str, slow: dict[str, float]) -> list[Link]:
    """Every neighbour in both directions; a host's rate bounds what it sends and receives."""
    links = []
    for at, one in enumerate(names):
        other = names[(at + 1) % len(names)]
        rate = min(slow.get(one, 1000.0), slow.get(other, 1000.0))
        links += [Link(one, other, rate), Link(other, one, rate)]
    return links


def test_the_end_of_a_slow_link_is_named() -> None:
    links = ring("n0", "n1", "n2", "n3", slow={"n2": 90.0})
    assert link_rates(links) == {"n0": 1000.0, "n1": 1000.0, "n2": 90.0, "n3": 1000.0}
    assert ids(Seen(links=links)) == [("slower-link", "n2")]
    # Which of two it is nobody can tell.
    assert ids(Seen(links=ring("n0", "n1", slow={"n1": 9.0}))) == []
    # Three: each has the two others as neighbours.
    assert ids(Seen(links=ring("n0", "n1", "n2", slow={"n0": 9.0}))) == [("slower-link", "n0")]


def test_a_link_that_is_slow_in_one_direction_is_slow() -> None:
    links = [
        Link(link.sender, link.receiver, 5.0) if link.sender == "n1" else link
        for link in ring("n0", "n1", "n2", slow={})
    ]
    assert ids(Seen(links=links)) == [("slower-link", "n1")]


def test_a_host_that_cannot_send_is_named_with_whom() -> None:
    links = [Link("n0", "n1", 100.0), Link("n1", "n0", error="10.0.0.1 port 7: timed out")]
    [found] = compare(Seen(links=links))
    assert (found.id, found.severity, found.hosts) == ("no-link", ERROR, ("n1",))
    assert found.what == "it cannot send to n0: 10.0.0.1 port 7: timed out"
    assert link_rates(links) == {}  # one direction says nothing of the other


def test_a_clock_is_apart_only_if_that_is_certain() -> None:
    clocks = {"n0": Clock(0.0, 0.01), "n1": Clock(-3.25, 0.01), "n2": Clock(0.9, 0.5)}
    [found] = compare(Seen(clocks=clocks))
    assert (found.id, found.severity, found.hosts) == ("clock", WARNING, ("n1",))
    assert "3.2 s behind" in found.what
    [ahead] = compare(Seen(clocks={"n1": Clock(0.52, 0.01)}))
    assert "0.5 s ahead" in ahead.what


def test_a_host_with_another_version_is_named() -> None:
    def host(version: str) -> HostFacts:
        return HostFacts("", versions={"TensorFlow": version})

    facts = {"n0": host("2.15.1"), "n1": host("2.15.1"), "n2": host("2.14.0")}
    [found] = compare(Seen(facts=facts))
    assert (found.id, found.hosts) == ("version", ("n2",))
    assert found.what == "TensorFlow is 2.14.0 here, and 2.15.1 on the other hosts"
    assert compare(Seen(facts={"n0": host("2"), "n1": host("2")})) == []


def test_a_silent_host_is_a_finding() -> None:
    [found] = compare(Seen(silent={"n1": "it does not answer within 30 s"}))
    assert (found.id, found.severity, found.hosts) == ("unreachable", ERROR, ("n1",))
    assert found.remedy.startswith("try it by hand: ssh n1 true;")
