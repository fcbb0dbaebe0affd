"""Checks the order of a job's hosts: which edges of a ring of its ranks cross the network."""

from hvd_ft.job.ring_order import edges_across, host_order
from hvd_ft.members.hosts import host_list, parse_hosts


def describe_order(text: str) -> str:
    """Returns a line about the order that `hvdft run -H` gives to hosts.

    Args:
        text: Hosts in the form of -H; each slot takes a rank.

    Raises:
        HvdFtError: The text is not a list of hosts.
    """
    given = parse_hosts(text, 1)
    size = sum(host.slots for host in given)
    hosts, reordered = host_order(given, size)
    across = edges_across([host.name for host in hosts for _ in range(host.slots)])
    return reordered or (
        f"ranks are in the order of {host_list(hosts)}: {across} of {size} edges of a ring cross "
        "the network"
    )
