"""The phases of a job; the table at the top of job_machine.py says when each ends. Pure."""

from enum import Enum, auto


class Phase(Enum):
    """What the machine waits for."""

    NEW = auto()
    REACHING = auto()
    PUBLISHING = auto()
    RUNNING = auto()
    HEARING = auto()
    AWAITING = auto()
    EXPLAINING = auto()
    ENDED = auto()
