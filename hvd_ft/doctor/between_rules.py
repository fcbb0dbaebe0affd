"""Rules about several hosts: what differs between them, who is slower, who cannot be reached. Pure.

A host is slower than the others if it reaches less than `SLOWER` of the median of all; of two
hosts, of what the other one reaches. By its link none of two is named, as both ends have the same
rate: it takes a third host to know which end it is.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hvd_ft.doctor.facts import HostFacts
from hvd_ft.doctor.finding import ERROR, WARNING, Finding

SLOWER = 0.75  # of the median
APART_SECONDS = 0.5
_MOST_REASON = 300


@dataclass(frozen=True)
class Speed:
    """What the short test has measured on a host.

    Attributes:
        cpu: Thousand million floating point operations a second, on all CPUs it may use.
        memory: GB copied a second, read and written, on all of them.
        throttled: The share of the time for which the limit of CPU time has stopped it.
    """

    cpu: float
    memory: float
    throttled: float = 0.0


@dataclass(frozen=True)
class Clock:
    """How far a host's clock is ahead of this host's, in seconds.

    Attributes:
        ahead: By so much; negative: it is behind.
        within: That is known so well.
    """

    ahead: float
    within: float


@dataclass(frozen=True)
class Link:
    """What went from one host to another.

    Attributes:
        sender: Its name.
        receiver: Its name.
        rate: MB a second.
        error: Why nothing arrived; "": it did.
    """

    sender: str
    receiver: str
    rate: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Seen:
    """What was found out about all hosts of a job.

    Attributes:
        silent: Why nothing is known of a host, by its name.
        facts: By host.
        clocks: By host.
        speeds: By host.
        links: Between neighbours, in both directions.
    """

    silent: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    speeds: Mapping[str, Speed] = field(default_factory=dict)
    links: Sequence[Link] = ()


def unreachable(seen: Seen) -> list[Finding]:
    """Hosts on which nothing could be started, or which fell silent."""
    return [
        Finding(
            "unreachable",
            ERROR,
            reason[:_MOST_REASON],
            "mpirun starts a job's processes in the same way",
            f"try it by hand: ssh {host} true; see that the name, the key, the firewall and this "
            "Python are right there",
        ).on(host)
        for host, reason in seen.silent.items()
    ]


def unlinked(seen: Seen) -> list[Finding]:
    """Hosts that cannot reach another one."""
    return [
        Finding(
            "no-link",
            ERROR,
            f"it cannot send to {link.receiver}: {link.error}",
            "every two neighbours of the ring need a connection, in both directions",
            "open the firewall between them (HOROVOD_FT_PORTS names the ports), or name the "
            "interface that leads there: hvdft run --network-interface",
        ).on(link.sender)
        for link in seen.links
        if link.error
    ]


def clocks_apart(seen: Seen) -> list[Finding]:
    """Hosts whose clocks are certainly apart from this host's."""
    return [
        Finding(
            "clock",
            WARNING,
            f"its clock is {abs(clock.ahead):.1f} s {'ahead' if clock.ahead > 0 else 'behind'}",
            "times in logs, reports and files of this host do not fit those of the others",
            "timedatectl set-ntp true, or chronyc makestep, on that host",
        ).on(host)
        for host, clock in seen.clocks.items()
        if abs(clock.ahead) - clock.within > APART_SECONDS
    ]


def versions_apart(seen: Seen) -> list[Finding]:
    """Hosts with another version of something than most have."""
    found = []
    names = sorted({name for facts in seen.facts.values() for name in facts.versions})
    for name in names:
        of = {host: facts.versions.get(name, "none") for host, facts in seen.facts.items()}
        # Of several that are equally frequent that of the first host.
        [(usual, _)] = Counter(of.values()).most_common(1)
        found += [
            Finding(
                "version",
                ERROR,
                f"{name} is {version} here, and {usual} on the other hosts",
                "agents of different versions do not understand each other, and results differ",
                "install the same environment on all hosts, or share one",
            ).on(host)
            for host, version in of.items()
            if version != usual
        ]
    return found


def slower_hosts(seen: Seen) -> list[Finding]:
    """Hosts that are slower than the others."""
    speeds = seen.speeds
    rates = link_rates(seen.links)
    kinds = (
        ("cpu", "CPUs reach", "GFLOP/s", {host: speed.cpu for host, speed in speeds.items()}),
        ("memory", "memory copies", "GB/s", {host: s.memory for host, s in speeds.items()}),
        ("link", "link carries", "MB/s", rates if len(rates) > 2 else {}),
    )
    return [
        _slower(host, kind, f"its {what} {values[host]:.3g} {unit}", usual, seen)
        for kind, what, unit, values in kinds
        for host, usual in below_median(values).items()
    ]


def _slower(host: str, kind: str, what: str, usual: float, seen: Seen) -> Finding:
    speed = seen.speeds.get(host)
    cause = ""
    remedy = "see what else runs there (top), and its cooling and power profile (turbostat)"
    if kind == "link":
        remedy = f"see its cable and port (ethtool), and what else uses them; test {host} by iperf3"
    elif speed and speed.throttled > 0:
        cause = f"; its limit of CPU time stopped it for {speed.throttled:.0%} of the test"
        remedy = "raise the limit: docker run --cpus, resources.limits.cpu of a pod"
    return Finding(
        f"slower-{kind}",
        WARNING,
        f"{what}, the median is {usual:.3g}{cause}",
        "all other hosts wait for the slowest one in every step",
        f"{remedy}; or leave it out of -H",
    ).on(host)


def below_median(values: Mapping[str, float]) -> dict[str, float]:
    """Returns the median for each host that reaches less than `SLOWER` of it.

    The median of all, as one fast host among three would move that of the two others.

    Args:
        values: By host; more is better.
    """
    if len(values) < 2:
        return {}
    usual = statistics.median(values.values()) if len(values) > 2 else max(values.values())
    return {host: usual for host, value in values.items() if value < SLOWER * usual}


def link_rates(links: Sequence[Link]) -> dict[str, float]:
    """Returns what each host's own link can carry.

    That is its best pair's rate in the slower direction: a host behind a slow link has no good
    pair, and its neighbours have another one.

    Args:
        links: in both directions between neighbours.
    """
    pairs: dict[frozenset[str], list[float]] = {}
    for link in links:
        if not link.error:
            pairs.setdefault(frozenset((link.sender, link.receiver)), []).append(link.rate)
    found: dict[str, float] = {}
    for hosts, rates in pairs.items():
        if len(rates) == 2:  # both directions
            for host in hosts:
                found[host] = max(found.get(host, 0.0), min(rates))
    return found


BETWEEN_RULES = (unreachable, unlinked, versions_apart, clocks_apart, slower_hosts)


def compare(seen: Seen) -> list[Finding]:
    """Returns what the rules find between hosts."""
    return [finding for rule in BETWEEN_RULES for finding in rule(seen)]
