"""Processes that a test forks of itself."""

import os
import sys
import traceback
from collections.abc import Callable


def forked(act: Callable[[], object]) -> int:
    """Forks a process that does something and ends; returns its process id.

    Whatever it raises it ends there, with code 1: it never goes on as pytest, beside its parent.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    return child


def exit_code(child: int) -> int:
    """Waits for the end of such a process; returns its code, or less than 0: a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
