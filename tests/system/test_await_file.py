"""Waiting for a file without looking again and again."""

import subprocess
from pathlib import Path

import pytest

from hvd_ft.system.await_file import await_file


@pytest.mark.parametrize("how", ["touch there", "touch other; mv other there"])
def test_it_is_awaited(tmp_path: Path, how: str) -> None:
    # The first line is read when the shell runs, and the file comes only after that.
    command = ["sh", "-c", f"echo; read line; touch before; {how}"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdin and shell.stdout
        shell.stdout.readline()
        assert not await_file(tmp_path / "there", 0.01)
        shell.stdin.write("go\n")
        shell.stdin.flush()
        assert await_file(tmp_path / "there", 20)
    assert await_file(tmp_path / "there", 0)
