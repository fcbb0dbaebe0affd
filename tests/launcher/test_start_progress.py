"""What is said while a job starts."""

from hvd_ft.launcher.start_progress import BETWEEN_SECONDS, QUIET_SECONDS, StartProgress

LATE = 100 + QUIET_SECONDS


def test_a_quick_start_is_not_mentioned() -> None:
    progress = StartProgress(4, 100.0)
    assert progress.look(LATE - 1, 4, 3) == ""
    assert progress.look(LATE, 4, 4) == ""
    assert progress.over
    assert progress.look(LATE + 100, 4, 2) == ""  # a worker is started again


def test_one_rank_is_not_counted() -> None:
    assert StartProgress(1, 100.0).look(LATE, 0, None) == ""


def test_agents_come_before_ranks() -> None:
    progress = StartProgress(32, 100.0)
    assert progress.look(LATE, 12, None) == "12 of 32 agents have begun, after 10 s"
    later = LATE + BETWEEN_SECONDS
    assert progress.look(later, 12, 0) == ""  # the same again
    assert progress.look(later, 32, 0) == "0 of 32 ranks have begun, after 15 s"
    assert progress.look(later + 1, 32, 5) == ""  # too soon
    later += BETWEEN_SECONDS
    assert progress.look(later, 32, 20) == "20 of 32 ranks have begun, after 20 s"
    assert progress.look(later + 0.4, 32, 32) == "all 32 ranks have begun, after 20 s"
    assert progress.over


def test_a_launcher_that_has_no_rank_on_its_host_knows_of_agents_only() -> None:
    progress = StartProgress(32, 100.0)
    assert progress.look(LATE, 32, None) == "32 of 32 agents have begun, after 10 s"
    assert progress.look(LATE + 100, 32, None) == ""
    assert not progress.over
