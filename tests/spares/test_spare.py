"""A spare runs a script as `python script.py` would; each test compares the two."""

import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT

from hvd_ft.spares.spare import EXIT_UNFIT
from hvd_ft.system.handoff import send_order

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def started(directory: Path, needed: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    ours.settimeout(TIMEOUT_SECONDS)
    with theirs:
        words = [str(theirs.fileno()), str(directory), needed]
        process = subprocess.Popen(
            [sys.executable, "-m", "hvd_ft.spares.spare", *words],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=str(ROOT),
        )
    return process, ours


def through_a_spare(cwd: Path, target: str, is_module: bool, env: dict[str, str]) -> Ended:
    process, end = started(cwd, "json")
    with process, end, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        assert b"ready" in end.recv(4096)
        order = {"target": target, "is_module": is_module, "arguments": ["a", "-b"], "env": env}
        with open(os.devnull) as empty:
            streams = [empty.fileno(), out.fileno(), err.fileno()]
            send_order(end, {**order, "cwd": str(cwd)}, streams)
        code = process.wait(TIMEOUT_SECONDS)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        return Ended(code, *texts)


def through_python(cwd: Path, words: list[str], env: dict[str, str]) -> Ended:
    ended = subprocess.run(
        [sys.executable, *words, "a", "-b"],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


SHOW = """\
import gc, os, signal, sys, __main__
print(gc.isenabled(), gc.get_threshold())
print(sys.argv, sys.path[0], os.getcwd(), os.environ, repr(sys.stdin.read()))
print(__name__, __file__, __package__, __spec__ and __spec__.name, __main__.__dict__ is globals())
print([signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)])
print(sorted(os.listdir("/proc/self/fd")))
"""


@pytest.mark.parametrize(
    "script",
    [
        SHOW,
        "",
        "import sys; sys.exit(7)",
        "import sys; sys.exit('so it is')",
        "raise SystemExit",
        "def f():\n    raise ValueError('boom')\nf()",
        "def f(:",
        "import os; os._exit(3)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "raise KeyboardInterrupt",
        "import nowhere",
        "import atexit, __main__\nx = 1\natexit.register(lambda: print(x, __main__.x))\n1 / 0",
        "import sys\nsys.excepthook = lambda *e: print('hook', e[0])\nraise ValueError",
        "import threading, time\nx = 1\n"
        "threading.Timer(0.1, lambda: print(x)).start()\nprint('main ends')",
    ],
)
def test_a_script_sees_no_difference(tmp_path: Path, script: str) -> None:
    (tmp_path / "script.py").write_text(script)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ONLY": "here"}
    expected = through_python(tmp_path, ["script.py"], env)
    assert through_a_spare(tmp_path, "script.py", False, env) == expected
    assert not (tmp_path / "__pycache__").exists()


def test_a_module_sees_no_difference(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(SHOW)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    expected = through_python(tmp_path, ["-m", "package.train"], env)
    assert through_a_spare(tmp_path, "package.train", True, env) == expected


def test_a_spare_that_nobody_needs_goes(tmp_path: Path) -> None:
    process, end = started(tmp_path, "json")
    with process:
        end.close()
        assert process.wait(TIMEOUT_SECONDS) == 0


@pytest.mark.parametrize(
    ("needed", "said"), [("no_such_module", "cannot import"), ("colorsys", "has imported")]
)
def test_a_spare_that_would_not_do_says_so_once(tmp_path: Path, needed: str, said: str) -> None:
    (tmp_path / "colorsys.py").write_text("")  # hides the one of the standard library
    process, end = started(tmp_path, needed)
    with end:
        _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == EXIT_UNFIT
    [line] = err.decode().splitlines()
    assert line.startswith(f"hvdft: a spare {said}")
