"""Describes the end of a process in words."""

import os
import signal


def describe(status: int) -> str:
    """Returns a wait status, as from wait(2), in words: `exit code 1` or `signal 9, SIGKILL`."""
    return describe_code(os.waitstatus_to_exitcode(status))


def describe_code(code: int) -> str:
    """Returns an exit code in words; a negative one is the signal that ended the process."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"signal {-code}"
