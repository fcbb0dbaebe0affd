"""Messages as bytes: a JSON object with its length before it. Pure: bytes in, messages out.

Data from a socket may come from anybody. So every reader has a limit of bytes, and anything that is
not a message is a ValueError, however deeply it is nested.
"""

import json
import struct
from typing import Any

import msgspec

from hvd_ft.system.json_text import Kind, read_json, read_json_as

Message = dict[str, Any]

HEADER = struct.Struct("!I")
MOST_BYTES = 16 << 20  # an environment and a command line take a few MiB at most


def pack(message: Message) -> bytes:
    """Returns the bytes of a message."""
    body = json.dumps(message).encode("ascii")
    return HEADER.pack(len(body)) + body


def unpack(body: bytes) -> Message:
    """Reads the JSON of a message.

    Raises:
        ValueError: it is none.
    """
    message = read_json(body)
    if not isinstance(message, dict):
        raise ValueError("a message is not a JSON object")
    return message


def unpack_as(body: bytes, kind: type[Kind]) -> Kind:
    """Reads the JSON of one kind of message, and builds nothing that does not belong to it.

    Args:
        body: the bytes, which anybody may have sent.
        kind: a msgspec.Struct.

    Raises:
        ValueError: it is no such message.
    """
    try:
        return read_json_as(body, kind)
    except ValueError as error:
        raise ValueError(f"a message that is none of ours: {error}") from None


def convert(message: Message, kind: Any) -> Any:
    """Reads a message that was unpacked as one of a kind.

    Args:
        message: JSON.
        kind: a msgspec.Struct, or a union of such.

    Raises:
        ValueError: it is no such message; the field is named.
    """
    try:
        return msgspec.convert(message, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"a message that is none of ours: {error}") from None


def length_of(header: bytes, most_bytes: int = MOST_BYTES) -> int:
    """Returns the length of the body that follows a header.

    Raises:
        ValueError: it is longer than allowed.
    """
    (length,) = HEADER.unpack(header)
    if length > most_bytes:
        raise ValueError(f"a message of {length} bytes is too long")
    return int(length)


class Frames:
    """Cuts a stream of bytes into the bodies of messages.

    Args:
        most_bytes: limit of a body.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._received = bytearray()

    def add(self, data: bytes) -> None:
        """Adds what was read."""
        self._received += data

    def next(self) -> bytes | None:
        """Returns the next body, None if it is not complete.

        Raises:
            ValueError: it is too long.
        """
        if len(self._received) < HEADER.size:
            return None
        end = HEADER.size + length_of(bytes(self._received[: HEADER.size]), self._most)
        if len(self._received) < end:
            return None
        body = bytes(self._received[HEADER.size : end])
        del self._received[:end]
        return body


class OneFrame:
    """Reads one message, and not a byte of what follows it.

    Args:
        most_bytes: limit of its body.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._received = bytearray()
        self._end = HEADER.size
        self._has_length = False

    @property
    def wants(self) -> int:
        """How many bytes to read at most."""
        return self._end - len(self._received)

    def add(self, data: bytes) -> bytes | None:
        """Adds what was read, at most `wants` bytes; returns the body once it is complete.

        Raises:
            ValueError: it is too long.
        """
        self._received += data
        if self.wants == 0 and not self._has_length:
            self._has_length = True
            self._end += length_of(bytes(self._received), self._most)
        return bytes(self._received[HEADER.size :]) if self.wants == 0 else None
