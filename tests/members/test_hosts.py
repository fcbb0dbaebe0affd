"""Lists of hosts, placements and machine files."""

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import Host, host_list, machine_file, parse_hosts, parse_placement


def test_hosts_keep_their_order_and_have_one_slot_by_default() -> None:
    hosts = parse_hosts("n1:4,n0,10.0.0.7:2", 7)
    assert hosts == (Host("n1", 4), Host("n0", 1), Host("10.0.0.7", 2))
    assert host_list(hosts) == "n1:4,n0:1,10.0.0.7:2"
    assert machine_file(hosts) == "n1:4\nn0:1\n10.0.0.7:2\n"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "'' is not a host name"),
        ("n0:1,", "'' is not a host name"),
        ("-x:4", "'-x' is not a host name"),
        ("n0 n1", "'n0 n1' is not a host name"),
        ("n0:", "'' is not a number of slots"),
        ("n0:0", "'0' is not a number of slots"),
        ("n0:4:2", "'4:2' is not a number of slots"),
        ("n0:2,n1", "has 3 slots for 4 ranks"),
    ],
)
def test_what_is_no_list_of_hosts(text: str, part: str) -> None:
    with pytest.raises(HvdFtError, match=part) as raised:
        parse_hosts(text, 4)
    assert "give hosts and slots, such as -H localhost:4" in str(raised.value)


def test_a_placement_fills_the_nodes_in_order() -> None:
    assert host_list(parse_placement("4-3-1")) == "n0:4,n1:3,n2:1"


@pytest.mark.parametrize("text", ["", "4-", "-4", "4-0-1", "4,3", "four"])
def test_what_is_no_placement(text: str) -> None:
    with pytest.raises(HvdFtError, match="is not a placement"):
        parse_placement(text)
