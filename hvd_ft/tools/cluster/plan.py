"""The plan of a cluster: its name, its nodes and their links, checked. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError

NODES_AT_MOST = 64
_SUBNET = "10.213.0"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]+)")
_BITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_MICROSECONDS = {"us": 1, "ms": 10**3, "s": 10**6}
# tbf drops packets larger than its burst; with offloading a packet has up to 64 KiB.
_BURST_BYTES_AT_LEAST = 128 << 10
_QUEUE_BYTES = 16 << 20
_QUEUE_PACKETS = 100_000
_BPF_RANDOM = 0xFFFFF038  # SKF_AD_OFF + SKF_AD_RANDOM, from linux/filter.h
DEVICE, _HOLE = "eth0", "hole"  # of every node


@dataclass(frozen=True)
class Plan:
    """A cluster.

    Attributes:
        name: The name, which distinguishes clusters.
        size: Number of nodes; they are called n0, n1, and so on.
        rate: The rate of each node's link in each direction, such as `1gbit`; None: unlimited.
        delay: The delay from one node to another, such as `5ms`; None: no delay.
    """

    name: str = "default"
    size: int = 3
    rate: str | None = None
    delay: str | None = None

    def check(self) -> None:
        """Raises HvdFtError if such a cluster is not possible."""
        check_name(self.name)
        if not 1 <= self.size <= NODES_AT_MOST:
            raise HvdFtError(
                f"-n {self.size}: a cluster has 1 to {NODES_AT_MOST} nodes; give such a number"
            )
        if self.rate and not 1e5 <= (_amount(self.rate, _BITS) or 0) <= 1e11:
            raise HvdFtError(
                f"--rate {self.rate}: give 100kbit to 100gbit, such as 200mbit, or leave it out"
            )
        if self.delay and not 1 <= (_amount(self.delay, _MICROSECONDS) or 0) <= 1e7:
            raise HvdFtError(f"--delay {self.delay}: give 1us to 10s, such as 5ms, or leave it out")

    @property
    def nodes(self) -> list[str]:
        """The nodes' names."""
        return [f"n{index}" for index in range(self.size)]

    @property
    def addresses(self) -> dict[str, str]:
        """The nodes' addresses by their names; isolated clusters may share addresses."""
        return {node: f"{_SUBNET}.{index + 1}" for index, node in enumerate(self.nodes)}

    @property
    def hosts_file(self) -> str:
        """The nodes' /etc/hosts."""
        lines = [f"{address} {node}\n" for node, address in self.addresses.items()]
        return "".join(["127.0.0.1 localhost\n", *lines])

    @property
    def links(self) -> str:
        """A description of the links."""
        return f"{self.rate or 'unlimited'}, {f'delay {self.delay}' if self.delay else 'no delay'}"


def check_name(name: str) -> None:
    """Raises HvdFtError unless `name` is valid for a cluster."""
    if not _NAME.fullmatch(name):
        raise HvdFtError(
            f"--name {name!r}: give 1 to 32 lower-case letters, digits and dashes, no dash first"
        )


def shaping(plan: Plan, device: str, delayed: bool) -> list[str]:
    """Returns the lines for `tc -batch` that set the rate and delay of one end of a link.

    Args:
        plan: The cluster.
        device: The end, whose rate limits what it sends.
        delayed: Whether it adds the delay too; one end of each path does.
    """
    place, lines = "root", []
    if delayed and plan.delay:
        netem = f"netem delay {plan.delay} limit {_QUEUE_PACKETS}"
        lines.append(f"qdisc add dev {device} root handle 1: {netem}")
        place = "parent 1:1"
    if plan.rate:
        bits = _amount(plan.rate, _BITS)
        assert bits
        burst = max(int(bits / 8 / 1000), _BURST_BYTES_AT_LEAST)  # 1 ms
        tbf = f"tbf rate {int(bits)}bit burst {burst} limit {_QUEUE_BYTES}"
        lines.append(f"qdisc add dev {device} {place} handle 10: {tbf}")
    return lines


def losing(percent: float, ways: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the lines for `ip -batch` and `tc -batch` that make a node's link lose packets.

    Lost packets go to a device of the node that leads nowhere, so that the sender does not notice,
    as it would if a queue dropped them. Classic BPF chooses them at random, because many kernels
    lack netem.

    Args:
        percent: The percentage of lost packets.
        ways: `egress` for packets that the node sends, `ingress` for packets sent to it.
    """
    bound = min(round(percent / 100 * 2**32), 2**32 - 1)
    load, compare = f"32 0 0 {_BPF_RANDOM}", f"53 0 1 {bound}"
    choose = f'bytecode "4,{load},{compare},6 0 0 0,6 0 0 {2**32 - 1}"'
    ip = [f"link add {_HOLE} type veth peer name {_HOLE}-end"]
    ip += [f"link set {device} up" for device in (_HOLE, f"{_HOLE}-end")]
    tc = [f"qdisc add dev {DEVICE} clsact"]
    for way in ways:
        lost = f"action mirred egress redirect dev {_HOLE}"
        tc.append(f"filter add dev {DEVICE} {way} bpf {choose} {lost}")
    return ip, tc


# What ends that; each line fails where there is nothing to end.
NOT_LOSING = (("tc", f"qdisc del dev {DEVICE} clsact"), ("ip", f"link del {_HOLE}"))


def _amount(text: str, units: dict[str, int]) -> float | None:
    match = _AMOUNT.fullmatch(text.lower())
    return float(match[1]) * units[match[2]] if match and match[2] in units else None
