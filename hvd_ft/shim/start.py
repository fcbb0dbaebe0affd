"""Starts the shim that replaces one that was killed: `FD AGENT_PID`."""

import socket
import sys

from hvd_ft.shim.shim import live

if __name__ == "__main__":
    live(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
