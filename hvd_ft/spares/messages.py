"""The messages between a rank's shim, the shim of a spare, and the spare.

Shim to spare's shim:   SpareOrder with the streams; then Go, and Kill
Spare's shim to shim:   SpareStarted with the worker's pidfd; then SpareEnded
Spare's shim to spare:  SpareOrder with the streams
"""

import msgspec

from hvd_ft.system.wire import Message, convert


class SpareOrder(msgspec.Struct):
    """What a spare is to become.

    Attributes:
        target: the script, or the module.
        is_module: which of them.
        arguments: its.
        env: all of its environment.
        cwd: where it runs.
    """

    target: str
    is_module: bool
    arguments: list[str]
    env: dict[str, str]
    cwd: str


class SpareStarted(msgspec.Struct):
    """It is this rank's worker now.

    Attributes:
        pid: of the worker.
        time_ns: CLOCK_MONOTONIC's.
    """

    pid: int
    time_ns: int


class SpareEnded(msgspec.Struct):
    """It has ended.

    Attributes:
        status: as in wait(2).
        time_ns: CLOCK_MONOTONIC's.
    """

    status: int
    time_ns: int


class Go(msgspec.Struct, tag_field="do", tag="go"):
    """The worker may begin."""


class Kill(msgspec.Struct, tag_field="do", tag="kill"):
    """The worker's process group gets a signal.

    Attributes:
        signal: its number.
    """

    signal: int


def parse_end(wire: Message) -> SpareEnded:
    """Parses the report of a worker's end.

    Raises:
        ValueError: it is another message.
    """
    ended: SpareEnded = convert(wire, SpareEnded)
    return ended


def parse_command(wire: Message) -> Go | Kill:
    """Parses what a shim sends after its order.

    Raises:
        ValueError: it is another message.
    """
    command: Go | Kill = convert(wire, Go | Kill)
    return command
