"""Starts a shim by a command line instead of a fork: `FD AGENT_PIDFD AGENT_PID`."""

import socket
import sys

from hvd_ft.shim.shim import live

if __name__ == "__main__":
    end, agent, pid = map(int, sys.argv[1:])
    live(socket.socket(fileno=end), agent, pid)
