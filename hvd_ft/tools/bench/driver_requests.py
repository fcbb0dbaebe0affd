"""The worker's end: carries out the driver's requests one after the other."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

from hvd_ft import native
from hvd_ft.system.channel import Channel, Message


def connect(path: str) -> Channel:
    """Connects to the driver's socket. A worker without an agent dies with its parent.

    A worker may be stopped (SIGSTOP) when its launcher dies, and then cannot end by itself.
    """
    if native.worker() is None:
        native.die_with_parent()
    end = socket.socket(socket.AF_UNIX)
    end.connect(path)
    return Channel(end)


def requests(channel: Channel, rank: int) -> Iterator[Message]:
    """Reports that this rank is ready, then yields requests until the driver has no more."""
    channel.send({"rank": rank})
    while (messages := channel.receive()) is not None:
        for message in messages:
            if message["do"] == "end":
                return
            yield message


def serve(channel: Channel, rank: int, answer: Callable[[Message], dict[str, Any]]) -> None:
    """Answers requests until the driver has no more."""
    for message in requests(channel, rank):
        channel.send(answer(message))
