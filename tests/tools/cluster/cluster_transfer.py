"""Sends bytes from one node of a cluster to another, and the receiver prints how long it took.

`cluster_transfer.py receive PORT_FILE BYTES` and `cluster_transfer.py send PORT_FILE BYTES HOST`.
"""

import socket
import sys
import time
from pathlib import Path

PIECE = bytes(1 << 16)


def main() -> None:
    role, port_file, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if role == "receive":
        receive(port_file, size)
    else:
        with socket.create_connection((sys.argv[4], int(port_file.read_text())), 10) as end:
            for start in range(0, size, len(PIECE)):
                end.sendall(PIECE[: size - start])


def receive(port_file: Path, size: int) -> None:
    with socket.create_server(("", 0)) as listener:
        unfinished = port_file.with_suffix(".new")
        unfinished.write_text(f"{listener.getsockname()[1]}")
        unfinished.rename(port_file)
        listener.settimeout(10)
        end, _ = listener.accept()
        with end:
            end.settimeout(10)
            began = time.monotonic()
            while size > 0:
                size -= len(end.recv(1 << 20))
            print(time.monotonic() - began)


if __name__ == "__main__":
    main()
