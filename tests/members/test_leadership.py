"""Which launcher leads: every interleaving of two of them, and the record in a shared directory."""

import json
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hvd_ft.launcher.shared_record import SharedRecord
from hvd_ft.members.leadership import Leadership, Record, Watched

LEASE, MARGIN, END = 2, 2, 12
EMPTY = Record("job1", 0, "", 0, LEASE, False, 0, "")


class Kept:
    """An arbiter in memory; `fails` and `lies` are of the next swap."""

    def __init__(self, record: Record | None) -> None:
        self.record = record
        self.fails = self.lies = False

    def read(self) -> Record | None:
        return self.record

    def swap(self, expected: Record | None, new: Record) -> bool:
        if self.fails:
            raise OSError(5, "Input/output error")
        if self.record != expected:
            return False
        self.record = new
        if self.lies:
            raise OSError(5, "Input/output error")
        return True

    def remove(self) -> None:
        self.record = None


@dataclass(frozen=True)
class Launcher:
    """One of the two. lead: its record, until when it holds, and whether it is deposed."""

    watched: Watched = field(default_factory=Watched)
    lead: tuple[Record, float, bool] | None = None


@dataclass(frozen=True)
class World:
    """A state: the record, two launchers, the time, and how often the directory may yet fail."""

    record: Record | None
    launchers: tuple[Launcher, Launcher]
    now: int
    failures: int


def lead_of(launcher: Launcher, arbiter: Kept) -> Leadership:
    assert launcher.lead
    record, until, deposed = launcher.lead
    lead = Leadership(arbiter, record, until - record.seconds)
    lead.deposed = deposed
    return lead


def put(lead: Leadership) -> tuple[Record, float, bool]:
    return (lead._record, lead._until, lead.deposed)


def steps(world: World) -> Iterator[World]:
    if world.now < END:
        yield replace(world, now=world.now + 1)
    for number, launcher in enumerate(world.launchers):
        for trouble in ("", "fails", "lies") if world.failures else ("",):
            arbiter = Kept(world.record)
            if trouble:
                setattr(arbiter, trouble, True)
            after = act(launcher, arbiter, f"launcher {number}", world.now)
            pair = list(world.launchers)
            pair[number] = after
            left = world.failures - bool(trouble)
            yield World(arbiter.record, (pair[0], pair[1]), world.now, left)


def act(launcher: Launcher, arbiter: Kept, name: str, now: int) -> Launcher:
    """What a launcher does next: it renews, or looks and claims."""
    if launcher.lead and not launcher.lead[2]:
        if launcher.lead[1] >= now + LEASE:
            return launcher  # it has just renewed
        lead = lead_of(launcher, arbiter)
        lead.renew(now)
        return replace(launcher, lead=put(lead))
    watched = launcher.watched.seen(arbiter.read(), now)
    if watched.may_claim(now, MARGIN):
        try:
            lead_or_none = Leadership.claim(arbiter, watched, replace(EMPTY, leader=name), now)
        except OSError:
            return Launcher(watched, None)
        if lead_or_none:
            return Launcher(Watched(), put(lead_or_none))
    return Launcher(watched, None)


def test_two_launchers_never_lead_at_once_and_one_takes_over_in_time() -> None:
    first = World(None, (Launcher(), Launcher()), 1, 2)
    seen, todo = {first}, deque([first])
    taken_over = 0
    while todo:
        for following in steps(todo.popleft()):
            if following in seen:
                continue
            seen.add(following)
            todo.append(following)
            holding = [
                launcher
                for launcher in following.launchers
                if launcher.lead and not launcher.lead[2] and following.now < launcher.lead[1]
            ]
            assert len(holding) < 2, following
            taken_over += bool(holding and holding[0].lead and holding[0].lead[0].term > 1)
    assert taken_over > 0
    assert len(seen) > 1000


def leader(arbiter: Kept, now: float) -> Leadership:
    watched = Watched().seen(arbiter.read(), now)
    lead = Leadership.claim(arbiter, watched, EMPTY, now)
    assert lead
    return lead


def test_a_lease_counts_from_before_the_renewal() -> None:
    arbiter = Kept(None)
    lead = leader(arbiter, 10)
    assert lead.holds(11.9) and not lead.holds(12)
    assert lead.renew(13)
    assert lead.holds(14.9) and not lead.holds(15)
    arbiter.fails = True
    assert not lead.renew(14)
    assert lead.problem == "Input/output error"
    assert not lead.holds(15)


def test_a_renewal_of_which_only_the_answer_was_lost_is_no_other_leader() -> None:
    arbiter = Kept(None)
    lead = leader(arbiter, 10)
    arbiter.lies = True
    assert not lead.renew(11)
    arbiter.lies = False
    assert lead.renew(12) and not lead.deposed
    assert lead.holds(13.9)


def test_a_launcher_watches_for_a_lease_before_it_claims() -> None:
    arbiter = Kept(None)
    lead = leader(arbiter, 0)
    watched = Watched().seen(arbiter.read(), 100)
    assert not watched.may_claim(104, MARGIN)
    assert watched.may_claim(104.1, MARGIN)
    assert lead.renew(1)
    watched = watched.seen(arbiter.read(), 104)
    assert watched.moved and not watched.may_claim(104.1, MARGIN)
    lead.release(2)
    watched = watched.seen(arbiter.read(), 105)
    assert watched.may_claim(105, MARGIN)
    other = Leadership.claim(arbiter, watched, EMPTY, 105)
    assert other and other.term == 2
    assert not lead.renew(3) and lead.deposed and not lead.holds(3)
    lead.remove()
    assert arbiter.record
    other.remove()
    assert arbiter.record is None


def test_what_is_published_is_what_the_next_leader_finds() -> None:
    arbiter = Kept(None)
    lead = leader(arbiter, 0)
    assert lead.publish(3, "1;n0:2@0,n3:2@1", 1)
    assert arbiter.record and (arbiter.record.generation, arbiter.record.members) == (
        3,
        "1;n0:2@0,n3:2@1",
    )
    arbiter.record = replace(arbiter.record, term=2)
    assert not lead.publish(4, "", 1) and lead.deposed


def test_the_record_in_a_shared_directory(tmp_path: Path) -> None:
    record = SharedRecord(str(tmp_path), "job1")
    other = SharedRecord(str(tmp_path), "job1")
    assert record.read() is None
    assert record.swap(None, EMPTY)
    assert stat.S_IMODE(os.stat(record.path).st_mode) == 0o600
    assert other.read() == EMPTY
    newer = replace(EMPTY, beat=1)
    assert other.swap(EMPTY, newer)
    assert not record.swap(EMPTY, replace(EMPTY, beat=2))
    assert record.read() == newer
    (tmp_path / "hvdft-job1.leader.new").write_text("torn")
    assert record.swap(newer, replace(newer, beat=2))
    with record._locked(), pytest.raises(BlockingIOError):
        other.swap(replace(newer, beat=2), EMPTY)
    record.remove()
    assert list(tmp_path.iterdir()) == []


WRONG = [json.dumps({**vars(EMPTY), name: []}) for name in vars(EMPTY)]


@pytest.mark.parametrize("text", ["", "{", '{"job": "job1"}', "[]", "[" * 100_000, *WRONG])
def test_what_is_no_record_is_not_overwritten(tmp_path: Path, text: str) -> None:
    record = SharedRecord(str(tmp_path), "job1")
    Path(record.path).write_text(text)
    with pytest.raises(OSError, match="is not a job's record"):
        record.swap(None, EMPTY)
    Path(record.path).write_text(json.dumps({**vars(EMPTY), "job": "job2"}))
    with pytest.raises(OSError, match="is the record of job job2"):
        record.read()
