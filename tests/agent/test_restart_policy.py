from dataclasses import replace

import pytest

from hvd_ft.agent.restart_policy import Done, End, Restart, RestartPolicy, Stop
from hvd_ft.job.settings import Settings
from hvd_ft.system.wait_status import describe

KILLED = 9
EXIT_1 = 1 << 8
EXIT_7 = 7 << 8


def policy(failures: int = 2) -> RestartPolicy:
    return RestartPolicy(3, Settings(max_failures=failures, failure_window_seconds=100.0))


@pytest.mark.parametrize("orderly", [True, False])
def test_exit_code_0_is_the_end_of_the_work(orderly: bool) -> None:
    assert policy().ended(End(0, orderly), 0.0) == Done()


@pytest.mark.parametrize("orderly", [True, False])
def test_a_killed_worker_is_restarted(orderly: bool) -> None:
    assert policy().ended(End(KILLED, orderly), 0.0) == Restart()


def test_an_uncaught_exception_is_a_failure() -> None:
    assert policy().ended(End(EXIT_1, False), 0.0) == Restart()


def test_an_orderly_exit_ends_the_job_with_its_code() -> None:
    message = "the worker of rank 3 ended with exit code 7"
    assert policy().ended(End(EXIT_7, True), 0.0) == Stop(7, message, failed=False)


@pytest.mark.parametrize(("status", "code"), [(KILLED, 137), (EXIT_7, 7)])
def test_one_failure_too_many_ends_the_job(status: int, code: int) -> None:
    rules = policy(failures=2)
    verdicts = [rules.ended(End(status, False, step=12), now) for now in (0.0, 50.0, 99.0)]
    assert verdicts[:2] == [Restart(), Restart()]
    stop = verdicts[2]
    assert isinstance(stop, Stop)
    assert (stop.exit_code, stop.failed) == (code, True)
    assert stop.message.startswith("rank 3 failed 3 times within 100 s")
    assert f"the last time at step 12: {describe(status)};" in stop.message


def test_the_last_words_are_in_the_final_error() -> None:
    stop = policy(failures=0).ended(End(EXIT_1, False, 3, "ValueError: bad (a.py:7)"), 0.0)
    assert isinstance(stop, Stop)
    assert "at step 3: ValueError: bad (a.py:7) (exit code 1);" in stop.message


def test_a_worker_that_fails_before_it_has_attached_ends_the_job() -> None:
    early = End(EXIT_7, False, attached=False)
    stop = policy().ended(early, 0.0)
    assert stop == Stop(
        7,
        "the worker of rank 3 ended with exit code 7 before hvd.init(); what it has printed, if "
        "anything, is above",
        failed=False,
    )
    words = replace(early, reason="before hvd.init(): ImportError: no (a.py:1)")
    stop = policy().ended(words, 0.0)
    assert isinstance(stop, Stop)
    assert stop.message.endswith("exit code 7 before hvd.init(): ImportError: no (a.py:1)")
    assert policy().ended(End(KILLED, False, attached=False), 0.0) == Restart()
    assert policy().ended(replace(early, incarnation=1), 0.0) == Restart()


BAD = End(EXIT_1, False, 3, "ValueError: bad <a at 0x7f01> (a.py:7)")


@pytest.mark.parametrize(
    ("first", "stops"),
    [
        (BAD, True),
        (replace(BAD, reason="ValueError: bad <a at 0x7e55> (a.py:7)"), True),
        (replace(BAD, step=2), False),
        (replace(BAD, reason="ValueError: worse (a.py:7)"), False),
        (replace(BAD, status=KILLED, reason=""), False),
    ],
)
def test_the_same_error_at_the_same_step_again_ends_the_job(first: End, stops: bool) -> None:
    rules = policy()
    assert rules.ended(first, 0.0) == Restart()
    stop = rules.ended(BAD, 1000.0)
    assert isinstance(stop, Stop) == stops
    if isinstance(stop, Stop):
        assert (stop.exit_code, stop.failed) == (1, True)
        assert stop.message.startswith("rank 3 failed again at step 3 with the same error")
        assert BAD.reason in stop.message
    else:
        assert isinstance(rules.ended(BAD, 2000.0), Stop)


def test_an_error_is_no_repeated_one_if_another_end_came_between() -> None:
    rules = policy(failures=9)
    ends = [BAD, End(EXIT_7, False, 3), BAD]
    assert [rules.ended(end, now) for now, end in enumerate(ends)] == [Restart()] * 3
    assert isinstance(rules.ended(BAD, 3.0), Stop)


def test_an_end_without_a_word_is_no_repeated_error() -> None:
    rules = policy(failures=9)
    assert [rules.ended(End(EXIT_7, False), now) for now in (0.0, 1.0, 2.0)] == [Restart()] * 3
    early = End(EXIT_7, False, attached=False, incarnation=1)
    assert rules.ended(early, 3.0) == Restart()
    assert isinstance(rules.ended(early, 4.0), Stop)


def test_a_restarted_script_that_ends_too_early_stops_the_job() -> None:
    rules = policy()
    early = End(0, orderly=True, replayed=5, owed=7)
    assert rules.ended(early, 0.0) == Done(), "the first incarnation may leave an op to the agents"
    rules.ended(End(KILLED, False), 1.0)
    stop = rules.ended(early, 2.0)
    assert isinstance(stop, Stop)
    assert (stop.exit_code, stop.failed) == (1, False)
    assert "ended after 5 collectives, but before its restart it took part in 7" in stop.message
    assert rules.ended(End(0, orderly=True, replayed=7, owed=7), 3.0) == Done()


def test_old_failures_do_not_count() -> None:
    rules = policy(failures=1)
    assert [rules.ended(End(KILLED, False), now) for now in (0.0, 101.0, 202.0)] == [Restart()] * 3


def test_with_no_failures_allowed_the_first_one_ends_the_job() -> None:
    assert isinstance(policy(failures=0).ended(End(KILLED, False), 0.0), Stop)


@pytest.mark.parametrize(
    ("status", "text"),
    [(KILLED, "signal 9, SIGKILL"), (EXIT_7, "exit code 7"), (40, "signal 40"), (0, "exit code 0")],
)
def test_a_status_in_words(status: int, text: str) -> None:
    assert describe(status) == text
