"""Who is in a job: the places, their epochs, and the file that says what a directory holds."""

import stat
from pathlib import Path

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.job import member_file
from hvd_ft.job.member_file import is_current, read_members, write_members
from hvd_ft.members.act_lease import ActLease
from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership, Place

HOSTS = [Host("n0", 4), Host("n1", 2), Host("n2", 2)]


def test_ranks_keep_their_numbers_when_a_spare_takes_a_place() -> None:
    first = Membership.first(HOSTS, 7)
    assert first.places == (Place("n0", 0, 4, 0), Place("n1", 4, 2, 0), Place("n2", 6, 1, 0))
    assert first.size == 7
    assert [first.place_of(rank) for rank in range(7)] == [0, 0, 0, 0, 1, 1, 2]
    second = first.replaced(1, "n3")
    assert second == Membership(
        1, (Place("n0", 0, 4, 0), Place("n3", 4, 2, 1), Place("n2", 6, 1, 0))
    )
    assert second.hosts == (Host("n0", 4), Host("n3", 2), Host("n2", 1))
    assert [place.describe() for place in second.places] == ["ranks 0-3", "ranks 4-5", "rank 6"]
    third = second.replaced(1, "n1")
    assert third.places[1] == Place("n1", 4, 2, 2)
    for members in (first, second, third):
        assert Membership.parse(str(members)) == members
    assert str(third) == "2;n0:4@0,n1:2@2,n2:1@0"


def test_a_place_without_a_host_of_its_own_is_a_guest() -> None:
    first = Membership.first(HOSTS, 8)
    after = first.vacated(1, "n2").withdrawn(0)
    assert str(after) == "2;n0:4@0-,n2:2@1-,n2:2@0"
    assert Membership.parse(str(after)) == after
    assert [after.is_guest(number) for number in range(3)] == [False, True, False]
    assert (after.staying, after.leaving) == (2, [0, 1, 2, 3, 4, 5])
    moved = after.replaced(1, "n1")
    assert moved.places[1] == Place("n1", 4, 2, 3, leaving=True)
    assert not moved.is_guest(1)


def test_ranks_return_to_a_place_with_a_host_of_its_own() -> None:
    members = Membership.first(HOSTS, 8).vacated(1, "n0")
    back = members.refilled(1, "n3")
    assert str(back) == "2;n0:4@0,n3:2@2,n2:2@0"
    assert (back.leaving, back.staying, back.is_guest(1)) == ([], 8, False)


def test_hosts_without_a_rank_are_no_members() -> None:
    assert Membership.first(HOSTS, 4).hosts == (Host("n0", 4),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1;",
        "x;n0:1@0",
        "0;n0:1@1",
        "0;n0:0@0",
        "0;n0@0",
        "0;n0:1@0,",
        "0;a b:1@0",
        "0;n0:1@0+",
    ],
)
def test_what_is_no_membership_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a membership"):
        Membership.parse(text)


def test_a_directory_is_of_the_epoch_in_which_its_host_took_the_place(tmp_path: Path) -> None:
    folder = str(tmp_path)
    first = Membership.first(HOSTS, 8)
    assert not is_current(folder, first, 0)  # never completed
    write_members(folder, first)
    assert stat.S_IMODE((tmp_path / "members").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["members"]
    assert read_members(folder) == first
    second = first.replaced(1, "n3")
    third = second.replaced(1, "n1")
    for later in (first, second, third):
        assert is_current(folder, later, 0)
        assert is_current(folder, later, 7)
        assert is_current(folder, later, 4) == (later is first)
    (tmp_path / "members").write_text("torn")
    assert read_members(folder) is None
    assert not is_current(folder, first, 0)
    assert not is_current(str(tmp_path / "none"), first, 0)


def test_what_a_directory_has_noted_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no room for it: a generation of agents that changes nothing writes nothing."""
    first = Membership.first(HOSTS, 8)
    write_members(str(tmp_path), first)
    written: list[str] = []
    monkeypatch.setattr(member_file, "write_line", lambda _, line: written.append(line))
    write_members(str(tmp_path), first)
    assert written == []
    second = first.replaced(1, "n3")
    write_members(str(tmp_path), second)
    assert written == [str(second)]


def test_a_shorter_membership_may_be_written_over_a_longer_one(tmp_path: Path) -> None:
    """As it is where there is no room for another file."""
    first = Membership.first(HOSTS, 8)
    (tmp_path / "members").write_text(f"{first}\nn2:1@0\n")
    assert read_members(str(tmp_path)) == first


def test_a_directory_that_is_full_is_named(tmp_path: Path) -> None:
    with pytest.raises(HvdFtError, match="members cannot be written"):
        write_members(str(tmp_path / "none"), Membership.first(HOSTS, 8))


def test_a_lease_counts_from_the_answer_and_not_from_the_grant() -> None:
    lease = ActLease(3)
    assert not lease.holds(0)
    lease = lease.answered(1, 10).granted(1)
    assert lease.holds(12.9) and not lease.holds(13)
    lease = lease.answered(2, 11).answered(3, 12)
    late = lease.granted(2)  # it arrives whenever it does
    assert late.holds(13.9) and not late.holds(14)
    assert late.granted(2) == late.granted(1) == late  # known already
    assert late.granted(3).holds(14.9)
    newest = lease.granted(3)
    assert newest.granted(2) == newest and newest.holds(14.9)
    assert lease.granted(9) == lease


def test_answers_that_nobody_grants_are_forgotten() -> None:
    lease = ActLease(3)
    for number in range(100):
        lease = lease.answered(number, number)
    assert len(lease.answers) == 16
    assert lease.granted(99).holds(101)
