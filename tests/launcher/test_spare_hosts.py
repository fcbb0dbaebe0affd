"""What `--spare-hosts` accepts."""

from typing import Any

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher import spare_hosts
from hvd_ft.launcher.job import Job, resolve
from hvd_ft.launcher.spare_hosts import parse_spare_hosts
from hvd_ft.members.hosts import Host
from hvd_ft.members.resizing_rule import Limits

HOSTS = [Host("n0", 4), Host("n1", 2)]
SCHEDULED = {"I_MPI_HYDRA_BOOTSTRAP": "slurm"}  # which resolves names by itself


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(spare_hosts, "say", lambda text: lines.append(str(text)))
    return lines


def test_spare_hosts_are_read_in_their_order(said: list[str]) -> None:
    assert parse_spare_hosts("n3:4,n2:2", HOSTS, 6, SCHEDULED) == (Host("n3", 4), Host("n2", 2))
    assert said == []


def test_a_host_that_none_can_replace_is_named(said: list[str]) -> None:
    parse_spare_hosts("n3:2", HOSTS, 6, SCHEDULED)
    assert said == ["no spare host has slots for the 4 ranks of n0: if it is lost it is waited for"]


def test_slots_without_a_rank_need_no_spare(said: list[str]) -> None:
    parse_spare_hosts("n3:2", [Host("n0", 2), Host("n1", 4)], 3, SCHEDULED)
    assert said == []


def test_an_unknown_spare_host_is_no_error(said: list[str]) -> None:
    parse_spare_hosts("no.such.host.invalid:4", HOSTS, 6, {})
    (line,) = said
    assert line.startswith("--spare-hosts names the host no.such.host.invalid, not known here")


@pytest.mark.parametrize(
    ("text", "hosts", "reason"),
    [
        ("n3:4", [], "there is no -H"),
        ("n3:4,n3:2", HOSTS, "n3 is named twice"),
        ("n1:4", HOSTS, "n1 is named twice"),
        ("n3:4", [*HOSTS, Host("n0", 1)], "-H names n0 twice"),
        ("n3:1", HOSTS, "n3 has 1 slots, and every host of -H has 2 ranks or more"),
        ("n3:x", HOSTS, "--spare-hosts n3:x: 'x' is not a number of slots"),
    ],
)
def test_what_cannot_help_is_refused(text: str, hosts: list[Host], reason: str) -> None:
    with pytest.raises(HvdFtError) as error:
        parse_spare_hosts(text, hosts, 6, SCHEDULED)
    assert reason in str(error.value)


@pytest.mark.parametrize("replaced", [{"spare_hosts": HOSTS}, {"limits": Limits(2)}])
@pytest.mark.parametrize(
    ("seconds", "reason"), [("2.9", "give 3 or more"), ("400", "HOST_TIMEOUT_SECONDS 300")]
)
def test_hosts_are_replaced_after_a_time_that_leases_allow(
    replaced: dict[str, Any], seconds: str, reason: str
) -> None:
    fence = {"HOROVOD_FT_FENCE_SECONDS": seconds}  # as a flag or a tuning file may give it
    with pytest.raises(HvdFtError, match=reason):
        resolve(Job(6, ["true"], given=fence, **replaced))
    resolve(Job(6, ["true"], given=fence))
