"""Scripts that call hvd.shutdown and hvd.init again, with no op between."""

import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft

SCRIPT = str(SCRIPTS / "torch_sessions_script.py")
SESSIONS = 6


@pytest.mark.shows(later=True)
def test_a_tensor_announced_to_the_session_before_is_not_lost(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    """The coordinator counted it before its own shutdown, and both ranks waited for ever."""
    ended = run_hvdft(
        ["run", "-np", "2", "--no-live", sys.executable, SCRIPT, str(tmp_path), str(SESSIONS)]
    )
    assert ended.code == 0, ended.err
    lines = sorted(line for line in ended.out.splitlines() if line.startswith("RESULT"))
    assert lines == [f"RESULT {rank} {SESSIONS * 6.0}" for rank in (0, 1)]
