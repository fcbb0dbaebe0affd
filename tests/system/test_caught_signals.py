"""Whether a process has a handler for a signal."""

import os
import signal
import subprocess
import sys

from hvd_ft.system.caught_signals import catches


def test_a_handler_is_seen_and_its_end() -> None:
    before = signal.signal(signal.SIGRTMIN + 5, lambda *_: None)
    try:
        assert catches(os.getpid(), signal.SIGRTMIN + 5)
        assert not catches(os.getpid(), signal.SIGRTMIN + 7)
        signal.signal(signal.SIGRTMIN + 5, signal.SIG_IGN)
        assert not catches(os.getpid(), signal.SIGRTMIN + 5)
    finally:
        signal.signal(signal.SIGRTMIN + 5, before)


def test_another_process_is_looked_at() -> None:
    code = "import faulthandler, signal; faulthandler.register(signal.SIGUSR1); print(); input()"
    program = [sys.executable, "-c", code]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert catches(process.pid, signal.SIGUSR1)
        assert not catches(process.pid, signal.SIGUSR2)
        process.communicate(b"\n")
    assert not catches(process.pid, signal.SIGUSR1)
