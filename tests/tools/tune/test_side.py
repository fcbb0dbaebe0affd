"""A job of `hvdft tune` that fails says why."""

from pathlib import Path

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.tools.tune.side import Side


@pytest.mark.job
def test_a_job_that_does_not_start_is_told_with_its_last_words(arena_dir: Path) -> None:
    side = Side(arena_dir, "1")
    with pytest.raises(HvdFtError) as error:
        side.start(["-np", "0"], {})
    side.end()
    assert str(error.value).startswith("a job failed: hvdft run ended with code 2; its output ends")
    assert "'0' is not a number of ranks" in str(error.value)


def test_a_socket_with_too_long_a_name_is_told(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with pytest.raises(HvdFtError, match="set TMPDIR to a short path"):
        Side(folder, "1").start([], {})
