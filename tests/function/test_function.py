"""hvd_ft.run: a function on every rank of a job."""

import io
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from conftest import HANG_SECONDS

import hvd_ft
from hvd_ft import function
from hvd_ft.errors import HvdFtError


class _Unmade(Exception):
    """Cannot be made from its pickle."""

    def __init__(self, one: int, two: int):
        super().__init__(one)


def _job_that(monkeypatch: pytest.MonkeyPatch, acts: Any, code: int = 0) -> list[Any]:
    """Puts a program in the place of the job; returns the commands and environments it gets."""
    seen = []

    def job(command: Any, env: Any) -> int:
        seen.append((command, env))
        acts(function._Files(Path(command[-1]), bytes.fromhex(env[function._KEY])))
        return code

    monkeypatch.setattr(function, "_job", job)
    return seen


def _calls(*ranks: int) -> Any:
    """The program of these ranks, one after the other."""

    def acts(files: function._Files) -> None:
        for rank in ranks:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", ["function", str(files.directory)])
                patch.setenv(function._KEY, files.key.hex())
                patch.setenv("HOROVOD_RANK", str(rank))
                try:
                    function._call()
                except Exception:
                    continue

    return acts


def _rank() -> int:
    return int(os.environ["HOROVOD_RANK"])


def test_results_come_by_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _job_that(monkeypatch, _calls(2, 10, 0, 1))
    assert hvd_ft.run(lambda a, b: (a, b, _rank()), (1,), {"b": 2}, np=4, env={"A": "1"}) == [
        (1, 2, rank) for rank in (0, 1, 2, 10)
    ]
    (command, env), *_ = seen
    assert "--num-proc=4" in command and env["A"] == "1"
    assert not Path(command[-1]).exists()
    assert not any(env[function._KEY] in word for word in command)


def test_ranks_find_the_modules_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "of_the_caller.py").write_text("def answer():\n    return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import of_the_caller  # type: ignore[import-not-found]

    def acts(files: function._Files) -> None:
        monkeypatch.delitem(sys.modules, "of_the_caller")
        monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path)])
        _calls(0)(files)

    _job_that(monkeypatch, acts)
    assert hvd_ft.run(of_the_caller.answer, np=1) == [42]


def test_what_the_lowest_rank_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        if _rank() != 0:
            raise KeyError(_rank())

    _job_that(monkeypatch, _calls(0, 2, 1), code=1)
    with pytest.raises(KeyError, match="1") as raised:
        hvd_ft.run(fails, np=3)
    (note,) = raised.value.__notes__
    assert note.startswith("on rank 1:\nTraceback") and "KeyError: 1" in note


def test_an_error_that_was_made_good_is_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def acts(files: function._Files) -> None:
        files.write_outcome("0", function._Outcome(b"", "KeyError"))
        files.write_outcome("0", function._Outcome(cloudpickle.dumps(2)))

    _job_that(monkeypatch, acts)
    assert hvd_ft.run(_rank, np=1) == [2]


def test_an_exception_that_cannot_be_made_here_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise _Unmade(1, 2)

    _job_that(monkeypatch, _calls(0), code=1)
    with pytest.raises(HvdFtError, match=r"raised on rank 0: .*_Unmade: 1"):
        hvd_ft.run(fails, np=1)


def test_a_job_that_fails_without_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    _job_that(monkeypatch, lambda files: None, code=74)
    with pytest.raises(HvdFtError, match="ended with code 74"):
        hvd_ft.run(_rank, np=1)


@pytest.mark.parametrize("name", ["call", "rank-0"])
def test_only_what_was_signed_is_unpickled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    def changes(files: function._Files) -> None:
        stranger = function._Files(files.directory, b"another")
        if name == "rank-0":
            stranger.write_outcome("0", function._Outcome(cloudpickle.dumps(1)))
            return
        path = files.directory / name
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        with pytest.raises(HvdFtError, match="is not as"):
            files.read(name)
        raise ConnectionAbortedError

    _job_that(monkeypatch, changes)
    with pytest.raises((HvdFtError, ConnectionAbortedError)):
        hvd_ft.run(_rank, np=1, directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_taken_for_another(tmp_path: Path) -> None:
    files = function._Files(tmp_path, b"key")
    files.write_outcome("0", function._Outcome(b"value"))
    (tmp_path / "rank-0").rename(tmp_path / "rank-1")
    with pytest.raises(HvdFtError, match="is not as"):
        files.outcomes()


def test_a_host_without_the_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(HvdFtError, match="a directory= that all hosts share"):
        function._Files(tmp_path / "elsewhere", b"key").read("call")


def test_what_cannot_be_pickled_is_said_before_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _job_that(monkeypatch, lambda files: None)
    with pytest.raises(HvdFtError, match=r"cannot be pickled .*lock"):
        hvd_ft.run(_rank, (threading.Lock(),), np=1)
    assert seen == []


def test_a_rank_without_the_function_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["function", str(tmp_path)])
    monkeypatch.setenv(function._KEY, "00")
    monkeypatch.setenv("HOROVOD_RANK", "0")
    with pytest.raises(SystemExit, match="2"):
        function._call()
    assert capsys.readouterr().err.startswith(f"hvdft: {tmp_path}/call cannot be read")


def test_flags() -> None:
    flags = {"np": 2, "checkpoint_dir": "ck", "verbose": True, "spares": None, "inject": ["a", "b"]}
    assert list(function._words({**flags, "no_tuning": False})) == [
        *("--num-proc=2", "--checkpoint-dir=ck", "--verbose", "--inject=a", "--inject=b")
    ]


def test_lines_come_to_streams_that_are_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    assert function._job([sys.executable, "-c", script], dict(os.environ)) == 3
    assert (out.getvalue(), err.getvalue()) == ("out\n", "err\n")


def test_lines_of_the_job_are_logged_if_the_caller_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("hvd_ft")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "level", logging.INFO)
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    script = "import sys; sys.stderr.write('hvdft: one\\nhvdft: warning: two\\nthree\\n')"
    assert function._job([sys.executable, "-c", script], dict(os.environ)) == 0
    assert lines.getvalue() == "INFO one\nWARNING two\n"
    assert err.getvalue() == "three\n"


def test_an_interrupt_asks_the_job_to_end() -> None:
    job = """
        import signal
        print("begun", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ended", flush=True)
        """
    caller = f"""
        import os, sys
        from hvd_ft import function
        try:
            function._job([sys.executable, "-c", {textwrap.dedent(job)!r}], dict(os.environ))
        except KeyboardInterrupt:
            print("interrupted")
        """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(caller)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "ended\ninterrupted\n"
    assert process.returncode == 0


@pytest.mark.job
@pytest.mark.shows(later=True)
def test_a_job_from_python_survives_a_kill(tmp_path: Path) -> None:
    script = tmp_path / "caller.py"
    script.write_text(
        textwrap.dedent(
            """
            import hvd_ft

            def train(begin):
                import os, signal
                import horovod.tensorflow as hvd
                import tensorflow as tf
                hvd.init()
                total = begin
                for step in range(20):
                    if (step, hvd.rank(), os.environ["HOROVOD_FT_INCARNATION"]) == (7, 1, "0"):
                        os.kill(os.getpid(), signal.SIGKILL)
                    total += float(hvd.allreduce(tf.constant([float(hvd.rank())]), op=hvd.Sum)[0])
                return hvd.rank(), total

            if __name__ == "__main__":
                print(hvd_ft.run(train, (1,), np=2))
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    assert done.stdout == "[(0, 21.0), (1, 21.0)]\n", done.stderr
    assert "rank 1 is back" in done.stderr, done.stderr
