"""Which signals a process handles by itself."""

import signal


def catches(pid: int, number: int | signal.Signals) -> bool:
    """Returns whether a process has a handler for a signal; false if there is no such process.

    Args:
        pid: of the process.
        number: of the signal.
    """
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False
