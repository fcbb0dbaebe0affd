"""An mpirun that does not end by itself: after a lost host, after all have left, while stopped."""

from hvd_ft.launcher.end_rule import (
    LEFT_SECONDS,
    STOPPED_SECONDS,
    Continue,
    EndRule,
    Kill,
    StopRule,
)

LEASE = 20.0


def test_a_lost_host_is_not_waited_for_when_the_job_is_over() -> None:
    rule = EndRule(30)
    assert rule.look(0, [], shims=True) is None
    assert rule.look(500, [], shims=True) is None, "agents have limits of their own"
    verdict = rule.look(501, ["host n2 (rank 3)", "host n1 (ranks 1, 2)"], shims=True)
    assert isinstance(verdict, Kill)
    assert verdict.why.startswith("host n1 (ranks 1, 2), host n2 (rank 3) are lost; the job is")
    assert isinstance(EndRule(30).look(0, ["host n1 (rank 1)"], shims=False), Kill)


def test_when_all_shims_have_left_mpirun_has_the_time_they_need_to_end() -> None:
    rule = EndRule(30)
    end = 30 + LEFT_SECONDS
    assert rule.look(100, [], shims=False) is None
    assert rule.look(99 + end, [], shims=False) is None
    assert rule.look(99.5 + end, [], shims=True) is None  # one had only lost its line
    assert rule.look(100 + end, [], shims=False) is None
    assert rule.look(99.9 + 2 * end, [], shims=False) is None
    verdict = rule.look(100 + 2 * end, [], shims=False)
    assert isinstance(verdict, Kill) and "mpirun has not ended for 40 s" in verdict.why


def test_a_stopped_mpirun_continues_after_a_lease_and_sooner_when_the_job_is_over() -> None:
    rule = StopRule(LEASE)
    assert rule.look(0, stopped=True, over=False) is None
    assert rule.look(10, stopped=False, over=False) is None
    assert rule.look(15, stopped=True, over=False) is None
    assert rule.look(34, stopped=True, over=False) is None, "it had gone on meanwhile"
    assert rule.look(35, stopped=True, over=False) == Continue(20)
    assert rule.look(36, stopped=False, over=False) is None
    assert rule.look(40, stopped=True, over=True) is None
    assert rule.look(40 + STOPPED_SECONDS, stopped=True, over=True) == Continue(STOPPED_SECONDS)


def test_an_mpirun_that_stays_stopped_is_killed() -> None:
    rule = StopRule(LEASE)
    verdicts = [rule.look(now, stopped=True, over=True) for now in range(6)]
    assert verdicts[:4] == [None, Continue(1), Continue(1), Continue(1)]
    assert isinstance(verdicts[4], Kill)
