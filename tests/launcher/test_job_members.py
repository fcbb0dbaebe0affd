"""The launcher replaces lost hosts: lines, probes and a clock of the test's own."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hvd_ft.launcher.host_watch import GiveUp, NewAgents
from hvd_ft.launcher.job_members import JobMembers

from hvd_ft.job.lifeline import ShimStatus
from hvd_ft.job.settings import Settings
from hvd_ft.launcher import job_members, reach
from hvd_ft.launcher.job import Job, ResolvedJob
from hvd_ft.members.hosts import Host
from hvd_ft.members.leadership import Record

SETTINGS = Settings(fence_seconds=4.5)
CHANGED = NewAgents("the job's hosts have changed", counts=False)
OLD, NEW = {"n0/1": {0, 1}, "n1/2": {2, 3}}, {"n0/1": {0, 1}}


class Probe:
    """A host's probe; `reasons` has those that are known."""

    reasons: ClassVar[dict[str, str | None]] = {}
    made: ClassVar[list[str]] = []

    def __init__(self, host: str, environment: Any) -> None:
        self.host = host
        Probe.made.append(host)

    def result(self) -> str | None:
        return Probe.reasons.get(self.host)

    def close(self) -> None:
        pass


class Lines:
    """Life-lines that remember what was told."""

    def __init__(self) -> None:
        self.gate: Any = None
        self.hosts = {host: set(ranks) for host, ranks in OLD.items()}
        self.shims: list[ShimStatus | None] = []
        self.notes: list[Any] = []

    def forget(self, hosts: list[str]) -> None:
        for host in hosts:
            self.hosts.pop(host)

    def release(self, ranks: range) -> list[str]:
        empty = [host for host, there in self.hosts.items() if there <= set(ranks)]
        for there in self.hosts.values():
            there -= set(ranks)
        self.forget(empty)
        return empty

    def note(self, note: Any) -> None:
        self.notes.append(note)


class Made:
    """A job of two hosts with spare ones."""

    def __init__(self, *spares: Host, leader: Any = None, **more: Any) -> None:
        job = Job(
            4,
            ["true"],
            hosts=[Host("n0", 2), Host("n1", 2)],
            machine_file="machines",
            spare_hosts=spares,
            **more,
        )
        self.lines: Any = Lines()
        self.members = JobMembers(ResolvedJob(job, SETTINGS, "", {}, {}), self.lines, leader, 0.0)
        self.forgotten: list[str] = []
        self.found: NewAgents | GiveUp | None = None  # by the watch
        self.watch: Any = SimpleNamespace(
            lost=[],
            any_silent=False,
            forget=self.forgotten.append,
            look=lambda now: self.found,
        )

    def lose(self, *hosts: str) -> None:
        self.watch.lost, self.watch.any_silent = list(hosts), True

    def look(self, now: float = 100.0) -> Any:
        return self.members.look(self.watch, now)


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    lines: list[str] = []
    monkeypatch.setattr(job_members, "say", lambda text: lines.append(str(text)))
    monkeypatch.setattr(reach, "Probe", Probe)
    monkeypatch.setattr(Probe, "reasons", {})
    monkeypatch.setattr(Probe, "made", [])
    yield lines


def test_a_lost_host_is_replaced(said: list[str]) -> None:
    made = Made(Host("n3", 2))
    members = made.members
    assert Probe.made == ["n3"]  # the user hears early of one that cannot be reached
    assert made.lines.gate is members
    assert members.present().machine_file == "machines"
    assert members.environment() == {
        "HOROVOD_FT_MEMBERS": "0;n0:2@0,n1:2@0",
        "HOROVOD_FT_ACT_LEASE": "3.000",
    }
    assert made.look() is None
    Probe.reasons["n3"] = ""
    made.lose("n1/2")
    assert made.look() == CHANGED
    assert said == ["host n1 is lost; its ranks 2-3 continue on n3 (epoch 1)"]
    assert (made.lines.hosts, made.forgotten) == (NEW, ["n1/2"])
    assert members.present().hosts == (Host("n0", 2), Host("n3", 2))
    with open(members.present().machine_file or "") as file:
        assert file.read() == "n0:2\nn3:2\n"
    assert members.environment()["HOROVOD_FT_MEMBERS"] == "1;n0:2@0,n3:2@1"
    assert members.host_of(2) == "n3"
    # The report is rank 0's, as soon as there is an agent of the new generation.
    members.begin(1)
    made.lose()
    for shim in (ShimStatus(0, "n0/1", 0, True), ShimStatus(0, "n0/1", 1, False)):
        assert made.lines.notes == []
        made.lines.shims = [shim]
        made.look()
    (note,) = made.lines.notes
    assert {**note, "time_ns": 0} == {
        "type": "REPLACED",
        "time_ns": 0,
        "rank": 2,
        "ranks": [2, 3],
        "host": "n1",
        "by": "n3",
        "epoch": 1,
    }
    members.close()


def test_leases_are_granted_to_hosts_that_have_their_place(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(job_members.time, "monotonic", lambda: now[0])
    made = Made(Host("n3", 2))
    Probe.reasons["n3"] = ""
    shim = ShimStatus(2, "n1/2", 0, False)
    assert made.members.admits(shim)
    assert made.members.grants(shim)
    made.lose("n1/2")
    assert made.look(104.5) is None
    assert made.look(104.6) == CHANGED
    assert not made.members.grants(shim)
    assert not made.members.admits(shim)
    assert not made.members.admits(ShimStatus(3, "n1/2", 0, False))
    assert said[1:] == ["host n1 is back and has lost its place: it is a spare host from now on"]
    assert made.members.rule.spares == ("n1",)


def test_a_launcher_that_may_not_act_grants_and_replaces_nothing() -> None:
    leads = [False]
    leader = SimpleNamespace(holds=lambda: leads[0], found=None)
    made = Made(Host("n3", 2), leader=leader)
    Probe.reasons["n3"] = ""
    made.lose("n1/2")
    assert made.look() is None
    assert not made.members.grants(ShimStatus(2, "n1/2", 0, False))
    leads[0] = True
    assert made.look() == CHANGED


def test_without_spare_hosts_nothing_changes() -> None:
    made = Made()
    assert made.lines.gate is None
    assert made.members.environment() == {
        "HOROVOD_FT_MEMBERS": "0;n0:2@0,n1:2@0",
        "HOROVOD_FT_ACT_LEASE": "",
    }
    made.lose("n1/2")
    assert made.look() is None
    assert not made.members.gone({"n1": "why"})
    assert not made.members.any_gone


def test_spare_hosts_out_of_reach_are_named_and_tried_again(said: list[str]) -> None:
    made = Made(Host("n3", 2), Host("n4", 2))
    Probe.reasons.update(n3="no route", n4="no route")
    made.lose("n1/2")
    assert made.look(100) is None  # those of the start may be there by now
    assert said.pop(0) == "spare host n3 cannot be reached: no route"
    assert made.look(101) is None
    assert made.look(102) is None
    assert said == [
        "spare host n4 cannot be reached: no route",
        "there is no spare host for n1 (ranks 2-3); waiting for it",
    ]
    Probe.reasons["n4"] = ""
    assert made.look(105) is None
    made.look(111)
    assert made.look(111.2) == CHANGED
    assert made.members.members.places[1].host == "n4"


def test_a_host_that_is_gone_for_good_ends_the_job_if_there_is_no_spare(said: list[str]) -> None:
    made = Made(Host("n3", 2))
    made.members.begin(1)
    Probe.reasons["n3"] = "no route"
    assert made.members.gone({"n1": "refused"})
    assert made.members.any_gone
    made.watch.any_silent = True
    assert made.look(100) is None
    assert made.look(101) == GiveUp(
        "host n1 (ranks 2-3) is gone (refused) and there is no spare host for it", ("n1",)
    )
    made.members.found("n1")
    assert not made.members.any_gone
    assert made.look() is None


def test_the_hosts_of_a_new_job_have_to_be_there() -> None:
    made = Made(Host("n3", 2))
    assert not made.members.gone({"n1": "refused"}, at_start=True)
    made.members.begin(1)
    assert made.members.gone({"n1": "refused"}, at_start=True)


def test_a_job_that_is_resumed_goes_on_with_what_the_record_says() -> None:
    record = Record("job1", 1, "other", 5, 10.0, False, 4, "2;n3:2@2,n1:2@0")
    leader = SimpleNamespace(holds=lambda: True, found=record)
    made = Made(Host("n3", 2), leader=leader, id="job1", resume=True)
    assert str(made.members.members) == record.members
    assert made.members.rule.spares == ("n0",)
    assert made.members.resumed_generation == 5
    assert [host.name for host in made.members.present().hosts] == ["n3", "n1"]
    with open(made.members.present().machine_file or "") as file:
        assert file.read() == "n3:2\nn1:2\n"
    made.members.close()


@pytest.mark.parametrize("spares", [(), (Host("n3", 1),)], ids=["no spare", "none that fits"])
def test_a_job_that_may_shrink_waits_until_a_lost_host_is_fenced(
    spares: tuple[Host, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_members.time, "monotonic", lambda: 100.0)
    made = Made(*spares, may_shrink=True)
    assert made.lines.gate is made.members
    assert made.members.environment()["HOROVOD_FT_ACT_LEASE"] == "3.000"
    for rank, host in ((0, "n0/1"), (3, "n1/2")):
        assert made.members.admits(ShimStatus(rank, host, 0, False))
        assert made.members.grants(ShimStatus(rank, host, 0, False))
    # The question that it has answered last was asked earlier than the answer came.
    made.lose("n1/2")
    made.found = GiveUp("host n1 has not answered for 5 s", ("n1",))
    assert made.look(104.5) is None
    verdict = made.look(104.6)
    assert isinstance(verdict, GiveUp) and verdict.names == ("n1",)
    made.found = NewAgents("host n0 was lost", counts=False)
    made.watch.lost = []
    assert made.look(100.1) == made.found


def test_others_give_a_host_up_at_once() -> None:
    made = Made()
    made.found = GiveUp("host n1 has not answered for 300 s", ("n1",))
    assert made.look(0.0) == made.found


def test_hosts_are_lost_earlier_where_spare_hosts_wait(said: list[str]) -> None:
    for spares, seconds in ((), 20.0), ((Host("n3", 2),), 4.5):
        watch = Made(*spares).members.host_watch()
        assert watch._settings.lease_seconds == seconds
        assert watch._replaces == bool(spares)


def test_in_place_a_lost_host_is_a_guest_of_another(said: list[str]) -> None:
    made = Made(may_shrink=True, least_in_place=2)
    members = made.members
    assert members.fences and members.replaces
    assert members.host_watch()._settings.host_timeout_seconds > SETTINGS.fence_seconds
    made.lose("n1/2")
    assert made.look() == CHANGED
    assert said == [
        "host n1 is lost; its ranks 2-3 continue on n0 until they leave the job (epoch 1)"
    ]
    assert members.environment()["HOROVOD_FT_MEMBERS"] == "1;n0:2@0,n0:2@1-"
    with open(members.present().machine_file or "") as file:
        assert file.read() == "n0:2\nn0:2\n"
    assert (members.take_left(), members.take_left()) == (["n1"], [])
    # If these agents cannot begin, the host is lost all the same; not because of later ones.
    assert members.unfilled == ()
    members.begin(1)
    assert members.unfilled == ("n1",)
    members.begin(2)
    assert members.unfilled == ()
    members.close()


def test_in_place_rank_0_s_host_is_given_up(said: list[str]) -> None:
    made = Made(may_shrink=True, least_in_place=2)
    made.lose("n0/1")
    verdict = made.look()
    assert isinstance(verdict, GiveUp) and verdict.names == ("n0",)
    assert not made.members.withdraw(["n0"])
    assert made.members.withdraw(["n1"])
    assert made.members.environment()["HOROVOD_FT_MEMBERS"] == "1;n0:2@0,n1:2@0-"
    assert made.members.take_left() == []
    made.members.close()


def test_in_place_ranks_return_on_a_host_that_is_found(said: list[str]) -> None:
    made = Made(may_shrink=True, least_in_place=2)
    members = made.members
    assert members.fitting([Host("n3", 2)]) is None
    assert members.withdraw(["n1"])
    taken = members.fitting([Host("n3", 2)])
    assert taken == {1: "n3"} and members.fitting([Host("n3", 1)]) is None
    assert members.refill(taken, [*taken], made.watch)
    assert said == ["ranks 2-3 return to the job on host n3 (epoch 2)"]
    assert made.forgotten == ["n1/2"] and made.lines.hosts == NEW
    assert members.environment()["HOROVOD_FT_MEMBERS"] == "2;n0:2@0,n3:2@2"
    with open(members.present().machine_file or "") as file:
        assert file.read() == "n0:2\nn3:2\n"
    assert members.take_left() == []
    members.begin(2)
    assert members.unfilled == ("n3",)
    members.close()


def test_they_do_not_where_another_launcher_leads_or_ranks_do_not_leave() -> None:
    led = SimpleNamespace(holds=lambda: False, found=None)
    made = Made(leader=led, may_shrink=True, least_in_place=2)
    assert not made.members.refill({1: "n3"}, [1], made.watch)
    assert Made(may_shrink=True).members.fitting([]) is None
