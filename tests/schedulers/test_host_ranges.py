"""Slurm's compressed lists of hosts and of counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_ft.schedulers.host_ranges import expand_counts, expand_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n0", "n0"),
        ("n[0-2]", "n0 n1 n2"),
        ("n[08-11,7],m2", "n08 n09 n10 n11 n7 m2"),
        ("r[1-2]c[1-2]-ib", "r1c1-ib r1c2-ib r2c1-ib r2c2-ib"),
        ("gpu-a[3],cpu", "gpu-a3 cpu"),
        ("n[99-101]", "n99 n100 n101"),
    ],
)
def test_hosts(text: str, hosts: str) -> None:
    assert expand_hosts(text) == hosts.split()


@pytest.mark.parametrize(
    "text", ["", "n[0-2", "n0-2]", "n[a-b]", "n[]", "n0,,n1", "n[1-]", "n[[1]]", "n[0-99999999]"]
)
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(ValueError):
        expand_hosts(text)


def test_no_list_is_expanded_beyond_a_limit() -> None:
    with pytest.raises(ValueError, match="more than 65536 hosts"):
        expand_hosts("n[0-999]x[0-999]")
    with pytest.raises(ValueError, match="more than 65536 hosts"):
        expand_counts("1(x999999999)")


@given(st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 30)), min_size=1, max_size=5))
def test_ranges_are_what_they_count(ranges: list[tuple[int, int]]) -> None:
    text = ",".join(f"{first:04}-{first + more:04}" for first, more in ranges)
    expected = [f"n{first + i:04}" for first, more in ranges for i in range(more + 1)]
    assert expand_hosts(f"n[{text}],last") == [*expected, "last"]


def test_counts() -> None:
    assert expand_counts("4(x2),3") == [4, 4, 3]
    assert expand_counts("1") == [1]
    for text in ("", "4(x)", "x", "4,,3", "-1"):
        with pytest.raises(ValueError):
            expand_counts(text)
