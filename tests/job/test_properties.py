"""What holds for every list of hosts and every environment, looked for by hypothesis."""

import string
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hvd_ft.errors import HvdFtError
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings, variables
from hvd_ft.members.hosts import Host, host_list, parse_hosts, parse_placement

WORD = st.text(string.ascii_letters + string.digits, min_size=1, max_size=8)
HOSTS = st.lists(st.builds(Host, WORD, st.integers(1, 99)), min_size=1, max_size=6)
NAMES = sorted(variables())
# Valid and invalid input of users.
VALUE = st.one_of(
    st.sampled_from(["", "0", "1", "-1", "1e3", "nan", "inf", "64M", "2g", "/tmp", "flat", "auto"]),
    st.floats().map(str),
    st.integers().map(str),
    st.text(max_size=20),
)


@given(HOSTS)
def test_a_list_of_hosts_is_read_as_it_is_written(hosts: list[Host]) -> None:
    size = sum(host.slots for host in hosts)
    assert parse_hosts(host_list(hosts), size) == tuple(hosts)
    with pytest.raises(HvdFtError, match="slots for"):
        parse_hosts(host_list(hosts), size + 1)


@given(st.text(max_size=30), st.integers(1, 10))
@example("n0:" + "9" * 5000, 1)  # Python does not read so long a number
def test_any_other_list_is_refused_in_one_line(text: str, size: int) -> None:
    try:
        hosts = parse_hosts(text, size)
    except HvdFtError as error:
        assert str(error).startswith(f"-H {text}")
    else:
        assert sum(host.slots for host in hosts) >= size


@given(st.text("0123456789-", max_size=12))
@example("9" * 5000)
def test_a_placement_is_read_or_refused(text: str) -> None:
    try:
        hosts = parse_placement(text)
    except HvdFtError:
        return
    assert "-".join(str(host.slots) for host in hosts) == "-".join(
        str(int(count)) for count in text.split("-")
    )


@given(HOSTS)
def test_every_rank_is_on_one_node(hosts: list[Host]) -> None:
    named = [f"{number}" for number, host in enumerate(hosts) for _ in range(host.slots)]
    nodes = Nodes.of(named)
    assert [nodes.node_of(rank) for rank in range(len(named))] == list(map(int, named))
    assert [rank for node in range(len(nodes)) for rank in nodes.ranks(node)] == list(
        range(len(named))
    )
    assert len(nodes.apart()) == len(named)


@given(st.dictionaries(st.sampled_from(NAMES), VALUE, max_size=6))
def test_settings_fit_together_or_are_refused_in_one_line(env: Mapping[str, str]) -> None:
    try:
        settings = Settings.from_env(env)
    except HvdFtError as error:
        assert "HOROVOD_FT_" in str(error)
        return
    assert 2 <= settings.suspect_seconds < settings.lease_seconds < settings.host_timeout_seconds
    assert settings.suspect_seconds < settings.link_timeout_seconds
    assert settings.replay_timeout_seconds < settings.recovery_timeout_seconds
    if settings.hang_timeout_seconds:
        hangs = settings.hang_timeout_seconds * settings.max_failures
        assert hangs < settings.failure_window_seconds
