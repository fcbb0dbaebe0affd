"""Runs a job under Intel MPI to its end, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

from hvd_ft.errors import HvdFtError
from hvd_ft.job.drills import renamed
from hvd_ft.job.leftovers import clear_leftovers
from hvd_ft.job.lifeline import check_descriptors
from hvd_ft.launcher.checkpoints import how_to_go_on, nothing_to_go_on_from
from hvd_ft.launcher.job import ResolvedJob, check_job, network_of
from hvd_ft.launcher.job_driver import JobDriver
from hvd_ft.launcher.job_sight import JobSight
from hvd_ft.launcher.machine.actions import End
from hvd_ft.launcher.machine.exit_rule import PREEMPTED, code_after_signal
from hvd_ft.launcher.outcome import Outcome
from hvd_ft.launcher.watchers import Display, Resizing, StatusPage
from hvd_ft.native.observer import Observer
from hvd_ft.system.event_loop import EventLoop
from hvd_ft.system.say import say
from hvd_ft.system.stop_signals import PREEMPTION, RECORD_SIGNAL, stop_signals


def launch(
    resolved: ResolvedJob,
    display: Display | None = None,
    watch: Callable[[Observer], None] | None = None,
    page: StatusPage | None = None,
    outcome: Outcome | None = None,
) -> int:
    """Runs a job to its end.

    When agents or mpirun die before the job has ended, a new generation of agents is started, which
    takes over the running workers.

    On SIGINT, SIGTERM or SIGHUP the job is asked to end; on a second signal, or if it does not end
    in time, it is killed. When this function returns, no process and no file of the job is left,
    unless a lost host has ended the job: then its state is kept for `Job.resume`.

    Args:
        resolved: What to run.
        display: Shows the job while it runs.
        watch: Called about 4 times a second with an observer of the running job.
        page: Shows the job on its status page.
        outcome: Counts what the job comes to.

    Returns:
        The workers' exit code; 128 + the signal's number if a signal ended this process or mpirun.

    Raises:
        HvdFtError: The job cannot be started.
    """
    ended = run_job(resolved, display, watch, page=page, outcome=outcome)
    settings = resolved.settings
    text = how_to_go_on(settings) if ended.code else ""
    if ended.code == PREEMPTED and settings.grace_seconds:
        text = text or nothing_to_go_on_from(settings)
    if text:
        say(text)
    return ended.code


def run_job(
    resolved: ResolvedJob,
    display: Display | None = None,
    watch: Callable[[Observer], None] | None = None,
    resizing: Resizing | None = None,
    *,
    page: StatusPage | None = None,
    outcome: Outcome | None = None,
) -> End:
    """Runs a job to its end, as `launch` does, but does not say how the job could go on.

    Args:
        resolved: What to run.
        display: As for `launch`.
        watch: As for `launch`.
        resizing: Decides whether the job ends early; asked about 4 times a second while it trains.
        page: As for `launch`.
        outcome: As for `launch`.

    Raises:
        HvdFtError: The job cannot be started.
    """
    check_job(resolved)
    job, settings = resolved.job, resolved.settings
    check_descriptors(job.size)
    for notice in filter(None, map(renamed, job.inject)):
        say(notice)
    if job.machine_file is not None:
        say(network_of(resolved))
    clear_leftovers(settings.arena_dir, but=job.id)
    more = PREEMPTION if settings.grace_seconds else ()
    with EventLoop() as loop, stop_signals(more, noticed=(RECORD_SIGNAL,)) as signals:
        sight = JobSight(resolved, display, watch, outcome or Outcome())
        try:
            driver = JobDriver(loop, resolved, signals, sight, resizing, page=page)
        except HvdFtError as error:
            if not signals.received:
                raise
            say(str(error))  # the user did not want to wait for what it waited for
            return End(code_after_signal(signals.received, None, grace=False))
        try:
            return driver.run()
        finally:
            driver.clear()
