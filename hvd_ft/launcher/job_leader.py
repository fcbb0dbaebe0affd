"""Keeps this launcher the only one of its job, through the arbiter in HOROVOD_FT_SHARED_DIR.

A shared directory may not answer for minutes, and the loop has to renew the leases of all hosts and
to heed the user. So all work in that directory is done in another thread, one call at a time.
"""

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hvd_ft.errors import HvdFtError
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.job import Job
from hvd_ft.launcher.shared_record import SharedRecord
from hvd_ft.members.leadership import (
    LEADERSHIP_SECONDS,
    MARGIN_SECONDS,
    RENEW_SECONDS,
    Arbiter,
    Leadership,
    Record,
    Watched,
)
from hvd_ft.system.apart import Call, call_apart
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.say import say
from hvd_ft.system.stop_signals import StopSignals

END_SECONDS = 5.0  # limit for what is done at the end of a job
_LOOK_SECONDS = 0.5  # a shared filesystem does not notify of changes

T = TypeVar("T")


def lead(loop: EventLoop, job: Job, settings: Settings, signals: StopSignals) -> "JobLeader | None":
    """Makes this launcher the leader of its job; None without HOROVOD_FT_SHARED_DIR.

    Raises:
        HvdFtError: another launcher leads the job, or the directory cannot be used.
    """
    if not settings.shared_dir:
        return None
    arbiter = SharedRecord(settings.shared_dir, job.id)
    return JobLeader(
        loop,
        arbiter,
        job.id,
        resume=job.resume,
        limit_seconds=settings.host_timeout_seconds,
        stopped=lambda: bool(signals.received),
    )


class JobLeader:
    """The leadership of this launcher.

    Args:
        loop: the loop that renews it.
        arbiter: the arbiter of the job.
        job: id of the job.
        resume: whether another launcher may have led the job before.
        limit_seconds: how long the arbiter may take to answer before a job begins.
        stopped: returns whether the user wants to stop.

    Raises:
        HvdFtError: another launcher leads the job, or the arbiter cannot be used.

    Attributes:
        found: the record that another launcher has left.
        on_renewed: called when a renewal has succeeded or failed.
        on_published: called after `publish`, with whether the record has been written.
    """

    def __init__(
        self,
        loop: EventLoop,
        arbiter: Arbiter,
        job: str,
        *,
        resume: bool,
        limit_seconds: float,
        stopped: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._job = job
        self._arbiter = arbiter
        self._limit = limit_seconds
        self._call: Call[bool] | None = None  # the latest one
        self._stopped = stopped
        self.found: Record | None = None  # that another launcher has left
        name = f"hvdft run on {os.uname().nodename} (pid {os.getpid()})"
        self._record = Record(job, 0, name, 0, LEADERSHIP_SECONDS, False, 0, "")
        try:
            self._leadership = self._claim(resume)
        except OSError as error:
            if stopped():
                raise HvdFtError(f"job {job} was not begun, as you have stopped it") from None
            raise HvdFtError(
                f"the record of job {job} in HOROVOD_FT_SHARED_DIR cannot be used "
                f"({error.strerror or error}): set it to a directory that is writable for you on "
                "all hosts, and on which locks work"
            ) from error
        self._complained = False
        self._wanted: tuple[int, str] | None = None  # to be published
        self._publishes = False  # the call under way
        self.on_renewed: Callable[[], object] = lambda: None
        self.on_published: Callable[[bool], object] = lambda done: None
        self._renew_at = loop.timer(self._renew)
        self._renew_at.set(loop.now() + RENEW_SECONDS)

    @property
    def deposed(self) -> bool:
        """Whether another launcher has taken the job over."""
        return self._leadership.deposed

    @property
    def until(self) -> float:
        """When the leadership ends unless it is renewed."""
        return self._leadership.until

    def holds(self) -> bool:
        """Returns whether this launcher may act."""
        return self._leadership.holds(self._loop.now())

    def publish(self, generation: int, members: str) -> None:
        """Records the next generation in the arbiter, once the call before has ended.

        Args:
            generation: the number of the next agents.
            members: their membership as text.
        """
        self._wanted = generation, members
        if not self._is_busy:
            self._publish()

    def _publish(self) -> None:
        assert self._wanted
        now = self._loop.now()
        self._begin(partial(self._leadership.publish, *self._wanted, now))
        self._wanted, self._publishes = None, True

    def end(self, *, resumable: bool) -> None:
        """Ends the leadership; waits only briefly if the arbiter does not answer.

        Args:
            resumable: whether the job can be resumed; otherwise its record is removed.
        """
        self._renew_at.clear()
        deadline = self._loop.now() + END_SECONDS
        while self._is_busy and (left := deadline - self._loop.now()) > 0:
            self._loop.run_once(left)
        if self._is_busy:
            return  # it might write the record after its end
        now = self._loop.now()

        def act() -> None:
            self._leadership.release(now) if resumable else self._leadership.remove()

        with contextlib.suppress(OSError):
            call_apart(self._loop, act, END_SECONDS, lambda: False)

    @property
    def _is_busy(self) -> bool:
        return self._call is not None and not self._call.is_done

    def _begin(self, act: Callable[[], bool]) -> Call[bool]:
        self._call = Call(self._loop, act, self._on_done)
        return self._call

    def _apart(self, act: Callable[[], T]) -> T:
        return call_apart(self._loop, act, self._limit, self._stopped)

    def _claim(self, resume: bool) -> Leadership:
        watched = Watched()
        told = False
        while True:
            record = self._apart(self._arbiter.read)
            watched = watched.seen(record, self._loop.now())
            if record is not None and not record.released and (watched.moved or not resume):
                raise HvdFtError(
                    f"job {self._job} is led by {record.leader}: end that one first, or wait until "
                    "it has ended"
                )
            now = self._loop.now()
            if watched.may_claim(now):
                claimed = self._apart(partial(self._claim_once, watched, now))
                if claimed:
                    self.found = record
                    return claimed
            elif record is not None and not told:
                told = True
                wait = record.seconds + MARGIN_SECONDS
                say(f"job {self._job} was led by {record.leader}; waiting {wait:g} s for its end")
            if self._stopped():
                raise HvdFtError(f"job {self._job} was not resumed, as you have stopped it")
            self._loop.run_once(_LOOK_SECONDS)

    def _claim_once(self, watched: Watched, now: float) -> Leadership | None:
        return Leadership.claim(self._arbiter, watched, self._record, now)

    def _renew(self) -> None:
        now = self._loop.now()
        self._renew_at.set(now + RENEW_SECONDS)
        if not self._is_busy:
            self._begin(partial(self._leadership.renew, now))
        elif not self.holds():
            self._complain()

    def _on_done(self) -> None:
        assert self._call
        done, published = self._call.result, self._publishes
        self._publishes = False
        if not self.holds():
            self._complain()
        elif done:
            self._complained = False
        self.on_renewed()
        if published:
            self.on_published(done)
        if self._wanted and not self._is_busy:
            self._publish()

    def _complain(self) -> None:
        if not self._complained and not self.deposed:
            self._complained = True
            why = "it does not answer" if self._is_busy else self._leadership.problem
            say(
                f"the record of job {self._job} in HOROVOD_FT_SHARED_DIR cannot be renewed "
                f"({why or 'it is locked'}): until it can, no host is "
                "replaced and no agents are started"
            )
