"""mpirun's output without Hydra's own: the filter, and streams without a reader."""

import os
import subprocess

import pytest
from streams import standard_streams

from hvd_ft.mpi.hydra_output import HydraFilter, MpirunOutput
from hvd_ft.system.event_loop import EventLoop

RULE = b"=" * 83 + b"\n"
BANNER = (
    b"\n" + RULE + b"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
    b"=   RANK 0 PID 17 RUNNING AT n0\n=   KILLED BY SIGNAL: 9 (Killed)\n" + RULE
)
HYDRA = b"[mpiexec@n0] check_exit_codes (../a.c:1): unable to run proxy on n7\n"
TEXTS = [
    b"",
    b"one\n",
    b"\n",
    b"\n\n\nend",
    b"= 5\n",
    RULE,
    RULE + b"title\n" + RULE,
    b"[mpi] no\n",
]


def filtered(text: bytes, step: int) -> tuple[bytes, list[str]]:
    taken = HydraFilter()
    shown = b"".join(taken.feed(text[i : i + step]) for i in range(0, len(text), step))
    return shown + taken.rest(), list(taken.kept)


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
@pytest.mark.parametrize("text", TEXTS)
def test_only_hydras_lines_are_taken_out(text: bytes, step: int) -> None:
    assert filtered(text, step) == (text, [])
    for part in (BANNER, HYDRA, BANNER + BANNER):
        before = b"" if RULE in text else text  # of unknown origin
        before += b"\n" if before and not before.endswith(b"\n") else b""
        shown, kept = filtered(before + part + text, step)
        assert shown == before + text
        assert kept
        assert all(line.startswith(("[mpiexec@", "=")) for line in kept)


def test_what_is_no_line_of_hydras_is_shown_at_once() -> None:
    taken = HydraFilter()
    assert taken.feed(b"1/60 [") == b"1/60 ["
    assert taken.feed(b"mpiexec@\r2/60 [=>") == b"mpiexec@\r2/60 [=>"
    assert taken.feed(b"===\nnext") == b"===\nnext"


@pytest.mark.parametrize("together", [False, True])
def test_hydras_line_in_the_middle_of_another_one_is_taken_out(together: bool) -> None:
    proxy = b"[proxy:0:1@n1.cluster] HYD_pmip: closed\n"
    writes = [b" 50%|##   ", HYDRA, b"\r 60%|###", proxy, b"\nend\n"]
    taken = HydraFilter()
    shown = b"".join(map(taken.feed, [b"".join(writes)] if together else writes))
    assert shown + taken.rest() == b" 50%|##   \r 60%|###\nend\n"
    assert list(taken.kept) == [line.decode().rstrip("\n") for line in (HYDRA, proxy)]


def test_a_reader_who_does_not_read_holds_up_nobody_and_loses_nothing() -> None:
    script = "printf '%0999d\\n' 7; echo bad >&2"
    count = 80  # more than a pipe holds
    with standard_streams() as (out, err), EventLoop() as loop:
        output = MpirunOutput(loop, None)
        for _ in range(count):
            mpirun = subprocess.Popen(
                ["sh", "-c", script], stdout=subprocess.PIPE, stderr=output.stderr
            )
            output.attach(mpirun)
            mpirun.wait()
            output.finish()
        assert os.read(err, 1 << 16) == b"bad\n" * count
        seen = os.read(out, 1 << 16)
        while len(seen) < 1000 * count:
            loop.run_once(0)
            seen += os.read(out, 1 << 16)
        assert seen == (b"7\n".rjust(1000, b"0")) * count


def test_lines_go_to_a_display() -> None:
    class Display:
        def output(self, line: str) -> None:
            shown.append(line)

    shown: list[str] = []
    output = MpirunOutput(EventLoop(), Display())
    script = f"printf 'one\\r\\n'; printf %s '{HYDRA.decode()}'; echo; printf two"
    mpirun = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=output.stderr)
    output.attach(mpirun)
    mpirun.wait()
    output.finish()
    output.drain()
    assert shown == ["one", "", "two"]
    assert output.kept == [HYDRA.decode().strip()]
