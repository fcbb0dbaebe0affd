"""The exit code of a job that was asked to end."""

from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1, Signals

import pytest
from hvd_ft.launcher.exit_rule import code_after_signal


@pytest.mark.parametrize(
    ("received", "own", "grace", "code"),
    [
        ([SIGTERM], 143, True, 143),  # the checkpoint is written, or the grace is over
        ([SIGUSR1], 143, True, 143),
        ([SIGTERM], None, True, 143),  # nothing was heard of the agents
        ([SIGUSR1], None, True, 143),
        ([SIGTERM], 0, True, 0),  # the training ended within the grace, …
        ([SIGUSR1], 0, True, 0),
        ([SIGTERM], 7, True, 7),  # … or failed
        ([SIGTERM, SIGTERM], None, True, 143),
        ([SIGINT], 0, True, 130),  # scripts may handle Ctrl-C
        ([SIGTERM], 0, False, 143),
        ([SIGHUP], 0, True, 129),
    ],
)
def test_the_code(received: list[Signals], own: int | None, grace: bool, code: int) -> None:
    assert code_after_signal(received, own, grace=grace) == code
