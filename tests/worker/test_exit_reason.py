"""What a worker leaves with its agent when it fails: processes of their own, without a job."""

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hvd_ft import native
from hvd_ft.worker.exit_reason import last_words

FAIL = """\
from hvd_ft.worker import exit_reason
exit_reason.keep_last_words()
raise ValueError("bad batch")
"""


@pytest.fixture
def agent(arena_dir: Path) -> Iterator[native.Agent]:
    """Rank 0's, of a job with one rank."""
    native.create_node(str(arena_dir), "mine", 1, 1 << 30)
    native.create_rank(str(arena_dir), "mine", 0, 1 << 30)
    with ExitStack() as stack:
        agent = native.Agent(str(arena_dir), "mine", 0)
        stack.callback(agent.close)
        yield agent


def run(folder: Path, script: str, incarnation: int) -> str:
    """Runs a worker's script; returns what it wrote to stderr."""
    environment = {
        **os.environ,
        "HOROVOD_FT_DIR": str(folder),
        "HOROVOD_FT_JOB": "mine",
        "HOROVOD_RANK": "0",
        "HOROVOD_FT_INCARNATION": str(incarnation),
    }
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, env=environment, check=False, timeout=60, capture_output=True, text=True
    )
    return ended.stderr


def test_the_agent_hears_them_and_the_traceback_stays(agent: native.Agent, arena_dir: Path) -> None:
    agent.started(0, 1)
    assert agent.last_words() == ""
    assert "Traceback" in run(arena_dir, FAIL, 0)
    assert agent.last_words() == "before hvd.init(): ValueError: bad batch (<string>:3)"


ATTACHED = "from hvd_ft import native\nnative.worker()\n"


def test_a_script_that_has_come_further_says_so(agent: native.Agent, arena_dir: Path) -> None:
    agent.started(0, 1)
    assert "Traceback" in run(arena_dir, ATTACHED + FAIL, 0)
    assert agent.last_words() == "ValueError: bad batch (<string>:5)"


def test_an_error_of_ours_stops_the_job_without_a_traceback(
    agent: native.Agent, arena_dir: Path
) -> None:
    agent.started(0, 1)
    script = "from hvd_ft.errors import HvdFtError as ValueError\n" + ATTACHED + FAIL
    assert run(arena_dir, script, 0) == ""
    assert agent.fatal_text() == ("rank 0: bad batch (<string>:6)", 1, 0)


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "OSError"])
def test_when_the_user_has_stopped_the_job_nobody_prints_tracebacks(
    agent: native.Agent, arena_dir: Path, error: str
) -> None:
    agent.started(0, 1)
    agent.fatal(128 + 15, "stopped by SIGTERM")
    script = ATTACHED + FAIL.replace("ValueError", error)
    assert run(arena_dir, script, 0) == ""
    assert agent.last_words() == ""


def test_another_incarnation_has_its_own(agent: native.Agent, arena_dir: Path) -> None:
    agent.started(0, 1)
    run(arena_dir, FAIL, 0)
    agent.failed(256)
    agent.started(1, 2)
    assert agent.last_words() == ""
    run(arena_dir, FAIL.replace("batch", "luck"), 1)
    assert agent.last_words() == "before hvd.init(): ValueError: bad luck (<string>:3)"


def test_the_first_words_of_an_incarnation_count(agent: native.Agent, arena_dir: Path) -> None:
    agent.started(0, 1)
    said = "from hvd_ft import native\nw = native.worker()\n"
    run(arena_dir, said + "w.last_words('first')\nw.last_words('second' * 200)", 0)
    assert agent.last_words() == "first"


def test_what_a_dead_worker_did_is_not_its_successors(agent: native.Agent, arena_dir: Path) -> None:
    view = native.Observer(str(arena_dir))
    agent.started(0, 1)
    run(arena_dir, "from hvd_ft import native\nnative.worker().set_step(7)", 0)
    before = view.watch(0)
    assert (before.state, before.step, before.pending) == (native.State.STARTING, 7, 0)
    assert not before.asleep
    agent.failed(9)
    after = view.watch(0)
    assert (after.state, after.executed, after.pending) == (native.State.RESTARTING, 0, 0)
    view.close()


def deep() -> None:
    raise OSError("first line\n  second line " + "x" * 400)


def test_they_are_one_line_with_the_place() -> None:
    try:
        deep()
    except OSError as error:
        text = last_words(error, error.__traceback__)
    line = deep.__code__.co_firstlineno + 1
    assert text.startswith("OSError: first line second line xxx")
    assert text.endswith(f"… ({__file__}:{line})")
    assert last_words(KeyboardInterrupt(), None) == "KeyboardInterrupt"


@pytest.mark.parametrize(
    "fail",
    [
        "json.loads('{')",
        "importlib.import_module('no_such_module')",
        "subprocess.run(['/nowhere'])",
        "concurrent.futures.ThreadPoolExecutor().submit(lambda: 1 / 0).result()",
        "hvd_ft.job.ports.read_ports({'P': 'x'}, 'P', None)",
    ],
)
def test_the_place_is_in_the_script_not_in_python_or_hvd_ft(tmp_path: Path, fail: str) -> None:
    script = tmp_path / "script.py"
    modules = "concurrent.futures, importlib, json, subprocess, hvd_ft.job.ports"
    script.write_text(f"import {modules}\ndef fail():\n    {fail}\nfail()\n")
    with pytest.raises(Exception) as raised:
        runpy.run_path(str(script))
    words = last_words(raised.value, raised.value.__traceback__)
    assert words.endswith(f" ({script}:3)"), words


def test_where_all_is_in_a_library_the_innermost_place_counts() -> None:
    with pytest.raises(ValueError) as raised:
        json.loads("{")
    trace = raised.value.__traceback__
    assert trace is not None
    assert "/json/decoder.py:" in last_words(raised.value, trace.tb_next)
