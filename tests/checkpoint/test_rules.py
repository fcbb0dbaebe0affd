"""When a checkpoint is due, which is the newest, and which are deleted."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hvd_ft.checkpoint.rules import Complaints, Entry, Schedule, newest, to_delete


def entry(job: str, loop: int, cut: int, *, run: str = "", whole: bool = True) -> Entry:
    return Entry(f"{job}-loop{loop}-step{cut}", run or job, int(job[1:]), loop, cut, whole)


def test_the_newest_is_of_the_latest_job_then_loop_then_cut() -> None:
    ordered = [entry("j1", 0, 9), entry("j1", 1, 3), entry("j1", 1, 5), entry("j2", 0, 1)]
    for some in itertools.permutations(ordered):
        assert newest(some) == ordered[-1]
    assert newest([*ordered, entry("j3", 0, 1, whole=False)]) == ordered[-1]
    assert newest([]) is None


def test_the_newest_ones_of_the_run_are_kept_and_the_base() -> None:
    own = [entry("j1", 0, cut, run="j1") for cut in range(1, 6)]
    later = [entry("j2", 0, cut, run="j1") for cut in (7, 9)]
    foreign = [entry("j0", 0, cut) for cut in range(1, 9)]
    names = [each.name for each in own]
    assert to_delete([*own, *foreign], "j1", 2, None) == names[:3]
    assert to_delete([*own, *later, *foreign], "j1", 2, names[4]) == names[:4]
    assert to_delete([*own, *later, *foreign], "j1", 2, None) == names
    assert to_delete(own, "j1", 9, None) == []


def test_what_a_lost_host_has_left_goes_when_a_whole_one_is_newer() -> None:
    torn = entry("j1", 0, 5, whole=False)
    older, newer = entry("j1", 0, 3), entry("j1", 0, 7)
    assert to_delete([torn, older], "j1", 1, None) == []
    assert to_delete([torn, older, newer], "j1", 3, None) == [torn.name]


@given(
    cuts=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 99)), unique=True, max_size=12),
    keep=st.integers(1, 4),
)
def test_the_newest_is_never_deleted(cuts: list[tuple[int, int]], keep: int) -> None:
    entries = [entry("j1", loop, cut) for loop, cut in cuts]
    gone = to_delete(entries, "j1", keep, None)
    left = [each for each in entries if each.name not in gone]
    assert len(left) == min(keep, len(entries))
    assert newest(left) == newest(entries)


def test_a_checkpoint_is_due_an_interval_after_the_one_before_began() -> None:
    schedule = Schedule(600.0, now=1000.0)
    assert schedule.due_at == 1600.0
    schedule.begun(1700.0)
    assert schedule.due_at == 2300.0
    assert not schedule.is_slow(600.0)
    assert schedule.is_slow(601.0)


def test_a_complaint_is_said_once_for_each_checkpoint_and_when_it_changes() -> None:
    complaints = Complaints()
    assert complaints.failed("full") == "full"
    assert complaints.failed("full") is None
    assert complaints.failed("gone") == "gone"
    assert complaints.missed == 1
    complaints.begun()
    assert complaints.failed("gone") == "gone (2 in a row)"
    assert complaints.failed("gone") is None
    complaints.begun()
    assert complaints.missed == 2, "the next one may be written"
    assert complaints.succeeded()
    assert complaints.missed == 0
    assert not complaints.succeeded()
    assert complaints.failed("gone") == "gone"


def test_what_is_wrong_besides_is_no_missed_checkpoint() -> None:
    complaints = Complaints()
    assert complaints.failed("late", missed=False) == "late"
    assert complaints.missed == 0
    assert complaints.succeeded()
    complaints.begun()
    assert complaints.failed("late", missed=False) == "late"
    assert complaints.failed("full") == "full"
    assert complaints.missed == 1
