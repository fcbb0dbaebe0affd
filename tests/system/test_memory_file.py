"""Files without a name."""

import stat
import subprocess
from pathlib import Path

from hvd_ft.system.memory_file import memory_file


def test_other_processes_can_read_and_write_it_while_it_is_there() -> None:
    with memory_file("n0:4\n") as path:
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        script = 'cat "$0" && echo more >>"$0"'
        done = subprocess.run(["sh", "-c", script, path], check=True, capture_output=True)
        assert done.stdout == b"n0:4\n"
        assert Path(path).read_text() == "n0:4\nmore\n"
    assert not Path(path).exists()
