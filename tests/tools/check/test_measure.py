"""The short test of a host's CPUs and memory."""

import pytest

from hvd_ft.tools.check import measure


def test_threads_that_start_too_late_measure_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy host is a slow one, not one without CPUs."""
    monkeypatch.setattr(measure, "SECONDS", 0.0)
    speed = measure.measure_speed()
    assert speed.cpu > 0 and speed.memory > 0
