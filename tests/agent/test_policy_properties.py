"""What holds for every series of failures, looked for by hypothesis."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_ft.agent.restart_policy import Done, End, Restart, RestartPolicy, Stop
from hvd_ft.job.lifeline_messages import ShimStatus
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.machine.generations import Again, GenerationPolicy, NotYet, Over

LIMITS = st.integers(0, 4)
WINDOW = 100.0
GAPS = st.lists(st.floats(0, 2 * WINDOW), min_size=1, max_size=12)
KILLED = 9  # as from wait(2)


def settings(limit: int) -> Settings:
    return Settings(max_failures=limit, failure_window_seconds=WINDOW)


@given(LIMITS, GAPS)
def test_kills_are_survived_until_there_are_too_many_within_the_window(
    limit: int, gaps: list[float]
) -> None:
    policy, now, times = RestartPolicy(0, settings(limit)), 0.0, []
    for incarnation, gap in enumerate(gaps):
        now += gap
        times.append(now)
        recent = [time for time in times if now - time <= WINDOW]
        verdict = policy.ended(End(KILLED, False, incarnation=incarnation), now)
        if len(recent) > limit:
            assert isinstance(verdict, Stop) and verdict.exit_code == 128 + KILLED
            return
        assert verdict == Restart()


@given(LIMITS, st.integers(1, 255), st.integers(0, 50), st.text(min_size=1, max_size=9))
def test_the_same_error_at_the_same_step_is_not_tried_a_third_time(
    limit: int, code: int, step: int, reason: str
) -> None:
    policy = RestartPolicy(0, settings(limit + 2))
    failed = End(code << 8, False, step=step, reason=reason)
    assert policy.ended(failed, 0.0) == Restart()
    verdict = policy.ended(failed, 1.0)
    assert isinstance(verdict, Stop) and verdict.exit_code == code and verdict.failed


@given(st.integers(0, 9), st.integers(0, 9))
def test_a_worker_that_has_ended_well_is_done_or_has_done_too_little(
    replayed: int, owed: int
) -> None:
    fresh = RestartPolicy(0, settings(3))
    assert fresh.ended(End(0, True, replayed=replayed, owed=owed), 0.0) == Done()
    restarted = RestartPolicy(0, settings(3))
    restarted.remember([0.0])
    verdict = restarted.ended(End(0, True, replayed=replayed, owed=owed), 1.0)
    assert (verdict == Done()) == (replayed >= owed)


STATUS = st.builds(ShimStatus, st.integers(0, 3), st.just("n0"), st.integers(0, 3), st.booleans())


@given(LIMITS, GAPS, st.lists(STATUS, max_size=4), st.booleans())
def test_agents_are_started_again_while_shims_wait_for_them(
    limit: int, gaps: list[float], shims: list[ShimStatus], counts: bool
) -> None:
    policy, now, times = GenerationPolicy(settings(limit)), 0.0, []
    orphans = any(shim.orphaned for shim in shims)
    for gap in gaps:
        now += gap
        times.append(now)
        recent = [time for time in times if now - time <= WINDOW]
        assert policy.ended(shims, now, over=True) == Over()
        verdict = policy.ended(shims, now, counts=counts)
        if not shims:
            assert verdict == Over()
        elif not orphans:
            assert verdict == NotYet()
        elif counts and len(recent) > limit:
            assert isinstance(verdict, Over) and verdict.message
            return
        else:
            assert verdict == Again()
