"""The error that users of hvd_ft see."""


class HvdFtError(RuntimeError):
    """One line that names the thing, the reason and the remedy.

    The command line prints it without a traceback; in a training script it is raised as usual.
    """


class HostError(HvdFtError):
    """Something is wrong on this host; it may be right on the others of the job."""


class NoRoomError(HvdFtError):
    """The arena's limit is reached, or its filesystem is full."""
