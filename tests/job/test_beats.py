"""When a process that should report every second has stopped, with a clock of the test's own."""

from hvd_ft.job.beats import Beats


def test_beats_that_stay_away() -> None:
    beats = Beats(20)
    assert beats.look_at == float("inf")
    assert not beats.is_silent(1000)  # nothing was promised
    beats.heard(1000)
    for now in range(1001, 1021):
        assert beats.look_at <= now + 20
        assert not beats.is_silent(now)
    assert beats.is_silent(1021)
    beats.heard(1022)
    assert not beats.is_silent(1033)  # we stood still ourselves, …
    assert not beats.is_silent(1043)
    assert not beats.is_silent(1053)
    assert beats.is_silent(1054)
    beats.heard(1055)
    beats.stop()
    assert beats.look_at == float("inf")
    assert not any(beats.is_silent(now) for now in range(1056, 1100))
