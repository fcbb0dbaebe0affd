"""The order of a ring's members: members on the same host are consecutive. Pure.

In a ring each member sends to the next one. If the members of a host are consecutive, one edge
leads away from the host, and one to it. Otherwise several edges share the host's link, and the ring
takes that many times longer.
"""

from collections.abc import Hashable, Sequence
from typing import TypeVar

from hvd_ft.members.hosts import Host, host_list

_Place = TypeVar("_Place", bound=Hashable)


def by_host(hosts: Sequence[Hashable]) -> list[int]:
    """Returns the members in an order in which those of each host are consecutive.

    Hosts keep the order of their first members, and the members of a host keep theirs. So the order
    depends only on the hosts, and is the same wherever it is determined.

    Args:
        hosts: the host of each member.
    """
    first = {host: member for member, host in reversed(list(enumerate(hosts)))}
    return sorted(range(len(hosts)), key=lambda member: first[hosts[member]])


def edges_across(hosts: Sequence[Hashable]) -> int:
    """Returns how many edges of a ring lead from one host to another.

    Args:
        hosts: the host of each member, in the order of the ring.
    """
    return sum(host != before for before, host in zip([*hosts[-1:], *hosts], hosts, strict=False))


def why_ordered(hosts: Sequence[Hashable]) -> str:
    """Returns why the members' own order cannot be used; "" if it can.

    Args:
        hosts: the host of each member.
    """
    across, needed = edges_across(hosts), edges_across([hosts[i] for i in by_host(hosts)])
    if across == needed:
        return ""
    return (
        f"in the given order {across} of {len(hosts)} edges of a ring would cross the network, by "
        f"host only {needed}"
    )


def host_order(hosts: Sequence[Host], size: int) -> tuple[tuple[Host, ...], str]:
    """Puts a job's hosts into an order in which the ranks of each host are consecutive.

    Args:
        hosts: with slots for all ranks; a host may be named several times.
        size: the number of ranks, which take the first slots.

    Returns:
        The hosts, each once; and a line for the user, "" if the order was already right. A host
        that was named several times has slots for its ranks only.
    """
    names = [host.name for host in hosts]
    if len(set(names)) == len(names):
        return tuple(hosts), ""
    slots = [host.name for host in hosts for _ in range(host.slots)][:size]
    spare = {host.name: host.slots for host in hosts if names.count(host.name) == 1}
    merged = tuple(
        Host(name, spare.get(name, slots.count(name)))
        for name in dict.fromkeys(names)
        if name in spare or name in slots
    )
    why = why_ordered(slots) or "a host is named more than once"
    return merged, f"ranks are ordered by host, {host_list(merged)}: {why}"
