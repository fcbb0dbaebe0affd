"""A made-up run: three ranks, and rank 1 is killed once. Times in ms become ns."""

import signal

from hvd_ft.native.types import Event, EventType

MS = 1_000_000
KILLED_NS = 4990 * MS


def event(ms: int, kind: EventType, rank: int, incarnation: int = 0, detail: int = 0) -> Event:
    return Event(ms * MS, kind, rank, incarnation, detail)


def one_failure() -> list[Event]:
    events = []
    for rank in range(3):
        events += [
            event(0, EventType.STARTED, rank, 0, 100 + rank),
            event(2000, EventType.ATTACHED, rank),
            event(2500, EventType.JOINED, rank),
        ]
    events += [
        event(5000, EventType.FAILED, 1, 0, signal.SIGKILL),
        event(5020, EventType.STARTED, 1, 1, 200),
        event(7320, EventType.ATTACHED, 1, 1),
        event(7820, EventType.RESTORED, 1, 1, 40),
        event(7920, EventType.JOINED, 1, 1, 3),
        event(7930, EventType.WAITED, 0, 0, 2900 * MS),
        event(7935, EventType.WAITED, 2, 0, 2905 * MS),
    ]
    events += [event(10000, EventType.DONE, rank, int(rank == 1)) for rank in range(3)]
    return events
