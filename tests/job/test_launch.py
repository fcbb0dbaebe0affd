"""What hvdft run tells its agents by the environment."""

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.job.launch import Launch
from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership


def test_agents_of_another_launcher_are_told_nothing() -> None:
    empty = dict.fromkeys(("JOB", "LAUNCHER", "GENERATION", "MEMBERS", "ACT_LEASE", "BEGUN"), "")
    told = {f"HOROVOD_FT_{name}": value for name, value in empty.items()}
    assert Launch.from_env({}) == Launch.from_env(told) == Launch()


def test_everything_is_read() -> None:
    members = Membership.first([Host("n0", 2), Host("n1", 1)], 3).replaced(1, "n2")
    said = {
        "JOB": "abc123",
        "LAUNCHER": "10.0.0.1:77",
        "GENERATION": "3",
        "MEMBERS": str(members),
        "ACT_LEASE": "3.000",
        "SHIM_STARTER": "starter",
        "BEGUN": "1764259200.250000",
    }
    launch = Launch.from_env({f"HOROVOD_FT_{name}": value for name, value in said.items()})
    assert launch == Launch(
        job="abc123",
        launcher="10.0.0.1:77",
        generation=3,
        members=members,
        act_lease=3.0,
        shim_starter="starter",
        begun=1764259200.25,
    )
    assert [launch.since(rank) for rank in range(3)] == [0, 0, 1]
    assert launch.since(9) == 0
    assert launch.guest_place(2) is None
    assert not launch.leaves(2)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("JOB", "../x", "letters and digits"),
        ("JOB", "a" * 49, "1 to 48"),
        ("GENERATION", "-1", "whole number"),
        ("MEMBERS", "x", "hvdft run sets it"),
        ("ACT_LEASE", "0", "above 0"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(HvdFtError, match=f"HOROVOD_FT_{name}='.*{allowed}"):
        Launch.from_env({f"HOROVOD_FT_{name}": value})


@pytest.mark.parametrize(
    ("begun", "known"),
    [
        (None, None),  # hvdft run has not started the job
        (999.0, 1.0),
        (1000.0, 2.0),
        (1000.1, None),  # the launcher's clock is ahead
        (400.0, -598.0),
        (399.9, None),  # or far behind
    ],
)
def test_a_job_s_begin_is_believed_only_if_it_can_be(
    begun: float | None, known: float | None
) -> None:
    found = Launch(begun=begun).begun_monotonic_ns(1000 * 10**9, 2 * 10**9)
    assert found == (None if known is None else known * 1e9)
