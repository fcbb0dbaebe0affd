"""The supervisor's table, row by row: events in, actions out; no process, no clock."""

import signal
from dataclasses import replace

import pytest

from hvd_ft.agent.actions import (
    Action,
    BeginWorker,
    NoteCause,
    NoteDone,
    NoteFailed,
    NoteStarted,
    ReplaceShim,
    RunHook,
    Say,
    SayWhyStopped,
    SignalWorker,
    StartWorker,
    StopJob,
    WatchWorker,
)
from hvd_ft.agent.adopted_worker import GoesOn, HasEnded, IsDone, ToStart
from hvd_ft.agent.hang_rule import Stuck
from hvd_ft.agent.supervisor import GRACE_SECONDS, Past, Supervisor, WorkerFacts
from hvd_ft.job.settings import Settings
from hvd_ft.native.types import BEFORE_INIT, State

SETTINGS = Settings(recovery_timeout_seconds=60, stop_grace_seconds=20, max_failures=2)
RANK = 3
PID = 700
WELL, KILLED, EXIT_1 = 0, int(signal.SIGKILL), 1 << 8
AT_7 = WorkerFacts(step=7)
NOW = 1000.0
NOW_NS = 1000 * 10**9
NEVER = float("inf")


def starts(incarnation: int) -> list[Action]:
    return [StartWorker(incarnation, spare=incarnation > 0), WatchWorker()]


def running(incarnation: int = 0) -> Supervisor:
    """A supervisor whose worker has attached, after so many deaths."""
    machine = Supervisor(RANK, SETTINGS)
    machine.begin()
    for number in range(incarnation + 1):
        machine.worker_started(PID + number, spare=False)
        machine.worker_attached(number)
        if number < incarnation:
            machine.worker_ended(KILLED, NOW_NS, WorkerFacts(step=number), NOW)
    return machine


def test_the_first_worker_is_no_spare() -> None:
    machine = Supervisor(RANK, SETTINGS)
    assert machine.begin() == starts(0)
    assert machine.worker_started(PID, spare=False) == [NoteStarted(0, PID)]
    assert not machine.watched  # it has not called hvd.init()
    machine.worker_attached(0)
    assert machine.watched
    assert machine.deadline == NEVER


def test_a_worker_that_cannot_be_started_ends_the_job() -> None:
    machine = Supervisor(RANK, SETTINGS)
    machine.begin()
    assert machine.worker_refused("cannot start x: no such file") == [
        StopJob(127, "rank 3: cannot start x: no such file")
    ]
    machine.job_over(NOW)
    assert machine.may_leave(NOW, hooks_running=False)


def test_a_worker_that_dies_is_restarted() -> None:
    machine = running()
    assert machine.worker_ended(KILLED, NOW_NS, AT_7, NOW) == [
        NoteFailed(KILLED),
        RunHook("on-failure", 0, {"HOROVOD_FT_EXIT_STATUS": "signal 9, SIGKILL"}),
        *starts(1),
        Say("rank 3 died (signal 9, SIGKILL) at step 7; restarting as incarnation 1"),
    ]
    assert machine.deadline == NOW + 60
    assert not machine.watched


@pytest.mark.parametrize("taken_over", [False, True])
def test_who_is_killed_for_lack_of_memory_is_said_to_be(taken_over: bool) -> None:
    why = "killed for lack of memory: 3.9 GiB used of 4.0 GiB; give it more"
    machine = Supervisor(RANK, SETTINGS) if taken_over else running()
    for time in range(SETTINGS.max_failures + 1):
        if taken_over:
            verdict = HasEnded(time, PID, True, KILLED, NOW_NS, why)
            past = Past(time, [NOW_NS] * time)
            done = Supervisor(RANK, SETTINGS).take_over(past, verdict, AT_7, NOW)
        else:
            done = machine.worker_ended(KILLED, NOW_NS, replace(AT_7, why=why), NOW)
            machine.worker_started(PID, spare=False)
            machine.worker_attached(time + 1)
        said = done[-1]
        assert NoteCause(time, why) in done  # for the report
        if time < SETTINGS.max_failures:
            text = "rank 3 died (signal 9, SIGKILL) at step 7, {}; restarting as incarnation {}"
            assert said == Say(text.format(why, time + 1))
    assert isinstance(said, StopJob)
    assert f"at step 7: {why} (signal 9, SIGKILL)" in said.message


def test_last_words_are_noted_for_the_report() -> None:
    machine = running()
    done = machine.worker_ended(1 << 8, NOW_NS, replace(AT_7, last_words="ValueError: x"), NOW)
    assert NoteCause(0, "ValueError: x") in done


def test_a_spare_begins_when_everybody_knows_of_it() -> None:
    machine = running()
    machine.worker_ended(KILLED, NOW_NS, AT_7, NOW)
    assert machine.worker_started(9, spare=True) == [
        NoteStarted(1, 9),
        BeginWorker(),
        Say("rank 3: a spare (pid 9) has taken over"),
    ]


def test_a_worker_that_is_back_is_told_of() -> None:
    machine = running(incarnation=1)
    assert machine.worker_rejoined(1, 12, NOW_NS + 2_500_000_000) == [
        Say("rank 3 is back after 2.5 s: 12 ops replayed"),
        RunHook(
            "on-restart",
            1,
            {"HOROVOD_FT_SECONDS_DOWN": "2.500", "HOROVOD_FT_OPS_REPLAYED": "12"},
        ),
    ]
    assert machine.deadline == NEVER


@pytest.mark.parametrize(("incarnation", "rejoined"), [(0, 0), (1, 0)])
def test_who_was_not_restarted_is_not_back(incarnation: int, rejoined: int) -> None:
    assert running(incarnation).worker_rejoined(rejoined, 0, NOW_NS) == []


def test_a_worker_that_ends_well_is_done() -> None:
    machine = running(incarnation=1)
    assert machine.worker_ended(WELL, NOW_NS, AT_7, NOW) == [NoteDone(WELL)]
    assert machine.deadline == NEVER
    assert not machine.may_leave(NOW, hooks_running=False)  # the others are not done


def test_a_worker_that_ends_itself_with_an_error_ends_the_job_first_and_is_done_then() -> None:
    actions = running().worker_ended(EXIT_1, NOW_NS, WorkerFacts(orderly=True), NOW)
    assert actions == [
        StopJob(1, "the worker of rank 3 ended with exit code 1"),
        NoteDone(EXIT_1),
    ]


def test_what_failed_before_init_did_not_attach() -> None:
    facts = WorkerFacts(last_words=f"{BEFORE_INIT}: ImportError: x")
    (stop, done) = running().worker_ended(EXIT_1, NOW_NS, facts, NOW)
    assert isinstance(stop, StopJob)
    assert stop.message.endswith("ImportError: x")
    assert done == NoteDone(EXIT_1)


def test_too_many_deaths_end_the_job() -> None:
    machine = running(incarnation=2)
    noted, hook, stop = machine.worker_ended(KILLED, NOW_NS, AT_7, NOW)
    assert noted == NoteFailed(KILLED)
    assert isinstance(hook, RunHook)
    assert hook.incarnation == 2
    assert isinstance(stop, StopJob)
    assert stop.exit_code == 128 + KILLED
    assert machine.pid is None


def test_a_stuck_worker_is_killed_and_the_user_learns_why() -> None:
    machine = running()
    assert machine.worker_stuck(Stuck(30.0, [0, 1])) == [SignalWorker(signal.SIGKILL)]
    *_, said = machine.worker_ended(KILLED, NOW_NS, AT_7, NOW)
    assert said == Say(
        "rank 3 was stuck: ranks 0, 1 waited 30.0 s for it; killed at step 7; "
        "restarting as incarnation 1"
    )
    machine.worker_started(PID, spare=False)
    *_, said = machine.worker_ended(KILLED, NOW_NS, AT_7, NOW)
    assert "stuck" not in str(said)  # that was the one before


@pytest.mark.parametrize("state", list(State))
def test_a_worker_that_does_not_come_back_ends_the_job(state: State) -> None:
    machine = running(incarnation=1)
    assert machine.time_passed(NOW + 59, state) == []
    actions = machine.time_passed(NOW + 60, state)
    if state in (State.RESTARTING, State.REPLAYING):
        (stop,) = actions
        assert isinstance(stop, StopJob)
        assert "(incarnation 1, pid 701) did not come back within 60 s" in stop.message
    else:
        assert actions == []
    assert machine.deadline == NEVER


def test_dying_again_gives_no_more_time_to_come_back() -> None:
    machine = running(incarnation=1)
    machine.worker_ended(KILLED, NOW_NS, AT_7, NOW + 50)
    assert machine.deadline == NOW + 60


# ------------------------------------------------------------------ the shim


def test_a_shim_that_dies_is_replaced_and_its_worker_restarted() -> None:
    machine = running()
    assert machine.shim_died() == [ReplaceShim()]
    said, *rest = machine.shim_replaced(50, 51, AT_7, NOW)
    assert said == Say(
        "the shim of rank 3 (pid 50) was killed, and its worker with it; another one (pid 51) "
        "takes its place"
    )
    assert rest == running().worker_ended(KILLED, NOW_NS, AT_7, NOW)
    assert machine.deadline == NOW + 60  # a worker of the new shim has no more time than others


def test_a_shim_may_die_when_its_worker_is_done() -> None:
    machine = running()
    machine.worker_ended(WELL, NOW_NS, AT_7, NOW)
    assert machine.shim_died() == [ReplaceShim()]
    assert len(machine.shim_replaced(50, 51, AT_7, NOW)) == 1


def test_without_a_shim_the_job_ends() -> None:
    machine = running()
    machine.shim_died()
    assert machine.shim_not_replaced("no memory") == [
        StopJob(1, "the shim of rank 3 was killed, and no memory")
    ]
    machine.job_over(NOW)
    assert machine.may_leave(NOW, hooks_running=True)


def test_at_the_jobs_end_no_shim_is_missed() -> None:
    machine = running()
    machine.job_over(NOW)
    assert machine.shim_died() == []
    assert machine.may_leave(NOW, hooks_running=True)


# ------------------------------------------------------------------ the job


def test_at_the_jobs_end_the_worker_is_terminated_then_killed() -> None:
    machine = running()
    assert machine.job_over(NOW) == [SayWhyStopped()]
    assert machine.time_passed(NOW, State.RUNNING) == [SignalWorker(signal.SIGTERM)]
    assert machine.deadline == NOW + GRACE_SECONDS
    assert machine.time_passed(machine.deadline, State.RUNNING) == [SignalWorker(signal.SIGKILL)]
    assert machine.deadline == NEVER
    assert not machine.may_leave(NOW, hooks_running=False)
    assert machine.worker_ended(KILLED, NOW_NS, AT_7, NOW) == []
    assert not machine.may_leave(NOW, hooks_running=True)
    assert machine.may_leave(NOW, hooks_running=False)
    assert machine.job_over(NOW) == []


def test_a_worker_that_writes_its_stacks_is_ended_when_they_are_there() -> None:
    machine = running()
    machine.stacks_written(NOW)  # for a record before
    machine.job_over(NOW, hold_seconds=0.8)
    assert machine.time_passed(NOW + 0.7, State.RUNNING) == []
    machine.stacks_written(NOW + 0.7)
    assert machine.time_passed(NOW + 0.7, State.RUNNING) == [SignalWorker(signal.SIGTERM)]
    machine.stacks_written(NOW + 0.7)
    assert machine.time_passed(NOW + 0.8, State.RUNNING) == [], "once"


def test_a_worker_that_does_not_write_its_stacks_is_ended_anyway() -> None:
    machine = running()
    machine.job_over(NOW, hold_seconds=0.8)
    assert machine.time_passed(NOW + 0.8, State.RUNNING) == [SignalWorker(signal.SIGTERM)]
    assert machine.leave_at == NOW + 0.8 + 3 * GRACE_SECONDS


def test_it_leaves_in_the_end_whatever_still_runs() -> None:
    machine = running()
    machine.job_over(NOW)
    assert machine.leave_at == NOW + 3 * GRACE_SECONDS
    assert machine.may_leave(machine.leave_at, hooks_running=True)


def test_a_worker_that_saves_after_ctrl_c_has_the_users_time() -> None:
    machine = running()
    assert machine.interrupt() == [SignalWorker(signal.SIGINT)]
    assert machine.stop(signal.SIGINT) == [StopJob(130, "stopped by SIGINT")]
    machine.job_over(NOW)
    machine.stacks_written(NOW + 18)
    assert machine.time_passed(NOW + 19, State.RUNNING) == []
    assert machine.time_passed(NOW + 20, State.RUNNING) == [SignalWorker(signal.SIGTERM)]
    assert machine.leave_at == NOW + 20 + 3 * GRACE_SECONDS


def test_a_worker_that_imports_sees_no_ctrl_c() -> None:
    machine = Supervisor(RANK, SETTINGS)
    machine.begin()
    assert machine.interrupt() == []
    machine.worker_started(PID, spare=False)
    assert machine.interrupt() == []
    machine.job_over(NOW)
    assert machine.time_passed(NOW, State.STARTING) == [SignalWorker(signal.SIGTERM)]


def test_who_dies_when_the_job_is_over_is_not_restarted() -> None:
    machine = running()
    machine.job_over(NOW)
    assert machine.worker_ended(KILLED, NOW_NS, AT_7, NOW) == []
    assert not machine.watched


def test_without_its_launcher_the_job_ends_and_says_so_at_once() -> None:
    assert running().launcher_died("mpirun (pid 5)") == [
        StopJob(128 + signal.SIGTERM, "mpirun (pid 5) was killed, so the job ends"),
        SayWhyStopped(),
    ]


# ------------------------------------------------------------------ a new generation


def taken_over(verdict: GoesOn | HasEnded | ToStart | IsDone, past: Past) -> list[Action]:
    return Supervisor(RANK, SETTINGS).take_over(past, verdict, AT_7, NOW)


@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_a_worker_that_lives_goes_on(noted: bool, begun: bool) -> None:
    machine = Supervisor(RANK, SETTINGS)
    verdict = GoesOn(incarnation=1, pid=PID, noted=noted, begun=begun)
    actions = machine.take_over(Past(1, [NOW_NS]), verdict, AT_7, NOW)
    assert actions == [
        *([] if noted else [NoteStarted(1, PID)]),
        WatchWorker(),
        *([] if begun else [BeginWorker()]),
    ]
    assert machine.watched
    assert machine.deadline == NOW + 60  # it may be replaying


def test_a_worker_that_never_failed_need_not_come_back() -> None:
    machine = Supervisor(RANK, SETTINGS)
    machine.take_over(Past(0, []), GoesOn(0, PID, True, True), AT_7, NOW)
    assert machine.deadline == NEVER


def test_a_worker_that_died_meanwhile_is_restarted() -> None:
    verdict = HasEnded(incarnation=0, pid=PID, noted=False, status=KILLED, time_ns=NOW_NS)
    noted, *rest = taken_over(verdict, Past(0, []))
    assert noted == NoteStarted(0, PID)
    assert rest == running().worker_ended(KILLED, NOW_NS, AT_7, NOW)


def test_what_no_agent_came_to_start_is_started() -> None:
    assert taken_over(ToStart(2), Past(1, [NOW_NS])) == starts(2)


def test_a_rank_that_is_done_stays_done() -> None:
    assert taken_over(IsDone(), Past(0, [])) == []


def test_failures_count_over_generations() -> None:
    verdict = HasEnded(incarnation=2, pid=PID, noted=True, status=KILLED, time_ns=NOW_NS)
    actions = taken_over(verdict, Past(2, [NOW_NS - 2, NOW_NS - 1]))
    assert isinstance(actions[-1], StopJob)


@pytest.mark.parametrize("generations", [2, 3])
def test_each_generation_goes_on_with_what_all_before_it_knew(generations: int) -> None:
    """Each of them sees one death, and the last one too many; it was one rank all the time."""
    settings = replace(SETTINGS, max_failures=generations - 1)
    failures: list[int] = []
    for number in range(generations):
        machine = Supervisor(RANK, settings)
        verdict = GoesOn(incarnation=number, pid=PID, noted=True, begun=True)
        machine.take_over(Past(number, failures), verdict, AT_7, NOW)
        assert machine.deadline == (NOW + 60 if failures else NEVER)
        actions = machine.worker_ended(KILLED, NOW_NS + number, AT_7, NOW)
        assert isinstance(actions[-1], Say if number < generations - 1 else StopJob), actions
        failures.append(NOW_NS + number)


def test_a_worker_that_was_restarted_by_an_older_generation_owes_its_collectives() -> None:
    ended = WorkerFacts(step=7, executed=5, contributed=7, orderly=True)
    for failures, stops in (([], False), ([NOW_NS], True), ([NOW_NS, NOW_NS + 1], True)):
        machine = Supervisor(RANK, SETTINGS)
        verdict = GoesOn(incarnation=len(failures), pid=PID, noted=True, begun=True)
        machine.take_over(Past(len(failures), failures), verdict, AT_7, NOW)
        first = machine.worker_ended(WELL, NOW_NS, ended, NOW)[0]
        assert isinstance(first, StopJob if stops else NoteDone)


def test_the_time_down_counts_from_the_death_that_an_older_generation_saw() -> None:
    machine = Supervisor(RANK, SETTINGS)
    past = Past(1, [NOW_NS - 9 * 10**9, NOW_NS - 4 * 10**9])
    machine.take_over(past, ToStart(2), AT_7, NOW)
    machine.worker_started(PID, spare=False)
    machine.worker_attached(2)
    said = machine.worker_rejoined(2, 12, NOW_NS)[0]
    assert said == Say("rank 3 is back after 4.0 s: 12 ops replayed")
    assert machine.worker_rejoined(1, 12, NOW_NS) == [], "that was the one before"
