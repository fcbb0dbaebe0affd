"""Keeps this launcher the only one of its job, through the arbiter in HOROVOD_FT_SHARED_DIR."""

import os
from collections.abc import Callable

from hvd_ft.errors import HvdFtError
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.job import Job
from hvd_ft.launcher.leadership import (
    LEASE_SECONDS,
    MARGIN_SECONDS,
    RENEW_SECONDS,
    Arbiter,
    Leadership,
    Record,
    Watched,
)
from hvd_ft.launcher.shared_record import SharedRecord
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.say import say
from hvd_ft.system.stop_signals import StopSignals

_LOOK_SECONDS = 0.5  # a shared filesystem does not notify of changes


def lead(loop: EventLoop, job: Job, settings: Settings, signals: StopSignals) -> "JobLeader | None":
    """Makes this launcher the leader of its job; None without HOROVOD_FT_SHARED_DIR.

    Raises:
        HvdFtError: another launcher leads the job, or the directory cannot be used.
    """
    if not settings.shared_dir:
        return None
    arbiter = SharedRecord(settings.shared_dir, job.id)
    return JobLeader(
        loop, arbiter, job.id, resume=job.resume, stopped=lambda: bool(signals.received)
    )


class JobLeader:
    """The leadership of this launcher.

    Args:
        loop: renews it.
        arbiter: of the job.
        job: id of the job.
        resume: whether another launcher may have led the job before.
        stopped: returns whether the user wants to stop.

    Raises:
        HvdFtError: another launcher leads the job, or the arbiter cannot be used.
    """

    def __init__(
        self,
        loop: EventLoop,
        arbiter: Arbiter,
        job: str,
        *,
        resume: bool,
        stopped: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._job = job
        self._arbiter = arbiter
        self._stopped = stopped
        self.found: Record | None = None  # that another launcher has left
        name = f"hvdft run on {os.uname().nodename} (pid {os.getpid()})"
        self._record = Record(job, 0, name, 0, LEASE_SECONDS, False, 0, "")
        try:
            self._leadership = self._claim(resume)
        except OSError as error:
            raise HvdFtError(
                f"the record of job {job} in HOROVOD_FT_SHARED_DIR cannot be used "
                f"({error.strerror or error}): set it to a directory that is writable for you on "
                "all hosts, and on which locks work"
            ) from error
        self._complained = False
        self._renew_at = loop.timer(self._renew)
        self._renew_at.set(loop.now() + RENEW_SECONDS)

    @property
    def deposed(self) -> bool:
        """Whether another launcher has taken the job over."""
        return self._leadership.deposed

    def holds(self) -> bool:
        """Returns whether this launcher may act."""
        return self._leadership.holds(self._loop.now())

    def publish(self, generation: int, members: str) -> bool:
        """Notes what is about to begin; waits while the arbiter cannot be reached.

        Args:
            generation: of agents.
            members: the membership as text.

        Returns:
            Whether it may begin; otherwise another launcher leads, or the user stops the job.
        """
        while not self._leadership.publish(generation, members, self._loop.now()):
            if self.deposed or self._stopped():
                return False
            self._complain()
            self._loop.run_once(_LOOK_SECONDS)
        return True

    def end(self, *, resumable: bool) -> None:
        """Ends the leadership.

        Args:
            resumable: whether the job can be resumed; otherwise its record is removed.
        """
        self._renew_at.clear()
        if resumable:
            self._leadership.release(self._loop.now())
        else:
            self._leadership.remove()

    def _claim(self, resume: bool) -> Leadership:
        watched = Watched()
        told = False
        while True:
            record = self._arbiter.read()
            watched = watched.seen(record, self._loop.now())
            if record is not None and not record.released and (watched.moved or not resume):
                raise HvdFtError(
                    f"job {self._job} is led by {record.leader}: end that one first, or wait until "
                    "it has ended"
                )
            now = self._loop.now()
            if watched.may_claim(now):
                claimed = Leadership.claim(self._arbiter, watched, self._record, now)
                if claimed:
                    self.found = record
                    return claimed
            elif record is not None and not told:
                told = True
                wait = record.lease_seconds + MARGIN_SECONDS
                say(f"job {self._job} was led by {record.leader}; waiting {wait:g} s for its end")
            if self._stopped():
                raise HvdFtError(f"job {self._job} was not resumed, as you have stopped it")
            self._loop.run_once(_LOOK_SECONDS)

    def _renew(self) -> None:
        self._renew_at.set(self._loop.now() + RENEW_SECONDS)
        if self._leadership.renew(self._loop.now()):
            self._complained = False
        elif not self.holds():
            self._complain()

    def _complain(self) -> None:
        if not self._complained and not self.deposed:
            self._complained = True
            say(
                f"the record of job {self._job} in HOROVOD_FT_SHARED_DIR cannot be renewed "
                f"({self._leadership.problem or 'it is locked'}): until it can, no host is "
                "replaced and no agents are started"
            )
