"""Steps per second, from readings at any times."""

from hvd_ft.status.rates import WINDOW_SECONDS, Rates


def test_a_rate_needs_two_changes() -> None:
    rates = Rates()
    for now, step in ((0.0, 7), (0.5, 7), (1.0, 8)):
        rates.read(now, {0: step})
        assert rates.of(0) is None
        assert not rates.all_known
    rates.read(3.0, {0: 9})
    assert rates.of(0) == 0.5
    assert rates.all_known


def test_the_time_between_readings_does_not_count() -> None:
    rates = Rates()
    for now in range(41):
        rates.read(now / 10, {0: now // 10})  # a step each second, read ten times
    assert rates.of(0) == 1.0


def test_several_steps_between_two_readings_count() -> None:
    rates = Rates()
    for now, step in ((0.0, 0), (1.0, 10), (2.0, 20)):
        rates.read(now, {0: step})
    assert rates.of(0) == 10.0


def test_another_incarnation_begins_anew() -> None:
    rates = Rates()
    for now, step in ((0.0, 50), (1.0, 51), (2.0, 52), (3.0, 40)):
        rates.read(now, {0: step})
    assert rates.of(0) is None


def test_what_is_long_past_does_not_count() -> None:
    rates = Rates()
    for now, step in ((0.0, 0), (1.0, 1), (2.0, 2)):
        rates.read(now, {0: step})
    rates.read(3.0 + WINDOW_SECONDS, {0: 2})
    assert rates.of(0) is None


def test_a_rank_that_has_not_begun_is_not_waited_for() -> None:
    rates = Rates()
    for now, step in ((0.0, 0), (1.0, 1), (2.0, 2)):
        rates.read(now, {0: step, 1: 0})
    assert rates.all_known
