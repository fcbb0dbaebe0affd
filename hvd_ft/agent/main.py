"""The agent of one rank: meets the others, makes the job's files, keeps its worker running."""

import hvd_ft.system.quiet_start  # noqa: F401

# isort: split

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from hvd_ft import __version__, native
from hvd_ft.agent.ablation import WARNING, ablates_network, check_ablation
from hvd_ft.agent.beginning import beginning
from hvd_ft.agent.checkpoints import code_with_checkpoints, writer_of
from hvd_ft.agent.hook_commands import Commands
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.job_setup import find_files, make_files
from hvd_ft.agent.node_leader import finalize, lead, node_facts, op_rules
from hvd_ft.agent.rendezvous import FailedElsewhere, Rendezvous
from hvd_ft.agent.report_writer import Journal
from hvd_ft.agent.resuming import Resumed
from hvd_ft.agent.shim_care import ShimCare, watch_over
from hvd_ft.agent.stacks import StackReader
from hvd_ft.agent.supervisor_loop import SupervisorLoop, Training
from hvd_ft.errors import HostError, HvdFtError
from hvd_ft.installed.environment import check_environment
from hvd_ft.job import bound_process
from hvd_ft.job.agent_flags import add_agent_flags, check_agent_flags
from hvd_ft.job.directory import job_path
from hvd_ft.job.drills import Drill, check_ranks, parse
from hvd_ft.job.host_key import host_identity
from hvd_ft.job.launch import Launch
from hvd_ft.job.member_file import is_current
from hvd_ft.job.peer_file import PeerFile
from hvd_ft.job.placement import Nodes
from hvd_ft.job.python_command import PythonCommand
from hvd_ft.job.report_file import has_file, write_report_path
from hvd_ft.job.settings import Settings
from hvd_ft.job.worker_environment import check_command, worker_environment
from hvd_ft.mpi.foreign_launcher import Rank0SaysIt, check_hydra, check_launcher
from hvd_ft.mpi.launcher_processes import launchers_above
from hvd_ft.mpi.own_interface import check_interface
from hvd_ft.mpi.variables import launch_rank, launch_rank_here, without_launcher
from hvd_ft.native import stacks
from hvd_ft.shim.client import ShimClient
from hvd_ft.shim.messages import Takeover
from hvd_ft.shim.reattach import answer_seconds
from hvd_ft.system.command_line import EXIT_BAD_INPUT, Parser
from hvd_ft.system.reaper import kill_descendants
from hvd_ft.system.say import say
from hvd_ft.system.stop_signals import PREEMPTION, StopSignals, stop_signals
from hvd_ft.system.writable import check_writable


@dataclass(frozen=True)
class Plan:
    """What this agent is to do.

    Attributes:
        command: the worker's command line.
        hooks: shell commands by name: `on-failure`, `on-restart`.
        report: file for the job's events, or None.
        trace_ops: whether the report has the times of single ops.
        drills: deaths of workers, of all ranks.
        spares: number of warm spares.
        settings: of the user.
        launch: what the launcher has said.
    """

    command: Sequence[str]
    hooks: Mapping[str, str]
    report: str | None
    trace_ops: bool
    drills: Sequence[Drill]
    spares: int
    settings: Settings
    launch: Launch


def main(argv: Sequence[str] | None = None) -> int:
    """Runs an agent to the end of its job.

    Args:
        argv: options and the worker's command; those of the process when None.

    Returns:
        The job's exit code, the same on every rank; 2 for bad input.
    """
    # Until agents can meet, a signal simply ends them (quiet_start.py), and the shim cleans up.
    try:
        native.become_subreaper()  # orphans of a killed shim are re-parented to this process
        shim = _find_shim()
        with contextlib.ExitStack() as stack:
            try:
                return _meet_and_run(sys.argv[1:] if argv is None else argv, shim, stack)
            finally:
                shim.end(shim.end_seconds)
                if unkillable := kill_descendants(_reap):
                    say(f"processes {unkillable} do not die of SIGKILL: look for them with ps")
    except Rank0SaysIt:
        return 0
    except HvdFtError as error:
        # Without the core or MPI every rank fails here; without a launcher there is only one rank.
        first_here = launch_rank_here(os.environ) == 0
        if launch_rank(os.environ) == 0 or (isinstance(error, HostError) and first_here):
            say(error)
        return EXIT_BAD_INPUT


def _find_shim() -> ShimClient:
    """Reattaches to the shim that an older agent has left, or forks one."""
    try:
        settings, launch = Settings.from_env(os.environ), Launch.from_env(os.environ)
    except HvdFtError:
        # The error is reported when all ranks can exchange theirs.
        settings, launch = Settings(), Launch()
    if launch.generation > 0 and launch.job:
        path = job_path(settings.arena_dir, launch.job)
        members, rank = launch.members, launch_rank(os.environ)
        try:
            # The shim of a host that has lost this place since is none of ours.
            if members is not None and not is_current(path, members, rank):
                shim = None
            else:
                seconds = settings.lease_seconds
                ours = Takeover(launch.generation, seconds, launch.launcher, launch.act_lease)
                limit = answer_seconds(settings.adoption_timeout_seconds)
                shim = ShimClient.reattach(path, rank, ours, launch.shim_starter, seconds=limit)
        except HvdFtError as error:
            say(error)
            sys.exit(EXIT_BAD_INPUT)
        if shim:
            return shim
    shim = ShimClient.begin(launch.shim_starter)  # before MPI: forking later is unsafe
    watch_over(shim, settings, launch, launch_rank(os.environ))
    return shim


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass


def _meet_and_run(argv: Sequence[str], shim: ShimClient, stack: contextlib.ExitStack) -> int:
    problem: HvdFtError | None = None
    plan = None
    try:
        plan = _plan(argv)
    except HvdFtError as error:
        problem = error
    settings = plan.settings if plan else Settings()
    check_hydra(os.environ)
    try:
        check_interface(os.environ)
    except HvdFtError:
        shim.release(EXIT_BAD_INPUT)  # no new agents would do better
        raise
    try:
        flat = settings.topology == "flat"
        rendezvous = Rendezvous(shim, settings.start_timeout_seconds, flat=flat)
    except HvdFtError as error:
        raise problem or error from None
    code = EXIT_BAD_INPUT
    # From here to the end a signal ends the job, not just this agent, which the others would wait
    # for. Hydra signals one agent after the other, and the first one has ended the job.
    signals = stack.enter_context(stop_signals(PREEMPTION if settings.grace_seconds else ()))
    try:
        check_launcher(os.environ, rendezvous.size, rendezvous.library)
        rendezvous.agree("the checks at the start", lambda: _raise(problem))
        assert plan  # no rank has reported a problem
        code = _run(rendezvous, plan, shim, signals)
    except FailedElsewhere:
        pass
    except HvdFtError as error:
        say(error)
    if code == EXIT_BAD_INPUT:
        shim.release(code)  # no new agents would do better
    rendezvous.finalize()
    return code


def _raise(problem: HvdFtError | None) -> None:
    if problem:
        raise problem


class _Parser(Parser):
    def error(self, message: str) -> NoReturn:
        raise HvdFtError(f"{message}; see hvdft agent --help")


def _plan(argv: Sequence[str]) -> Plan:
    parser = _Parser(
        prog="hvdft agent",
        description="Runs one rank's agent; for use under horovodrun or mpirun.",
        allow_abbrev=False,
    )
    add_agent_flags(parser)
    options = parser.parse_args(argv)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    check_command(command)
    check_agent_flags(options)
    settings, launch = Settings.from_env(os.environ), Launch.from_env(os.environ)
    if launch.generation == 0:
        check_environment()
    if options.spares < 0:
        raise HvdFtError(f"--spares {options.spares}: give the number of spares, 0 or more")
    if options.spares:
        PythonCommand.parse(command)
    if launch_rank(os.environ) == 0:
        check_writable(options.report)
    hooks = {"on-failure": options.on_failure, "on-restart": options.on_restart}
    return Plan(
        command=command,
        hooks={hook: text for hook, text in hooks.items() if text},
        report=options.report,
        trace_ops=options.trace_ops,
        drills=[parse(text) for text in options.inject],
        spares=options.spares,
        settings=settings,
        launch=launch,
    )


def _run(rendezvous: Rendezvous, plan: Plan, shim: ShimClient, signals: StopSignals) -> int:
    """From the rendezvous to the job's end; returns its exit code."""
    facts = _meet(rendezvous, plan.settings, plan.launch)
    versions = {version for _, _, version in facts}
    if len(versions) > 1:
        raise HvdFtError(
            f"the ranks have different versions of hvd_ft: {', '.join(versions)}; install the same "
            "one on all hosts"
        )
    rendezvous.agree("the check of --inject", lambda: check_ranks(plan.drills, rendezvous.size))
    names = [
        _host(name, boot, plan.launch.guest_place(rank))
        for rank, (name, boot, _) in enumerate(facts)
    ]
    hosts = Nodes.of(names)
    ablated = _check_ablation(rendezvous, plan.settings, hosts)
    with contextlib.ExitStack() as stack:
        get_files = find_files if plan.launch.generation > 0 else make_files
        context = get_files(rendezvous, hosts, plan.settings, plan.launch, shim=shim, stack=stack)
        began = beginning(rendezvous, context)
        checkpoint_writer = writer_of(rendezvous, context, began)
        observer = native.Observer(context.arenas)
        stack.callback(observer.close)
        agent = native.Agent(context.arenas, context.job, context.rank, plan.launch.generation)
        stack.callback(agent.close)
        journal = None
        if plan.report and context.rank == 0:
            journal = Journal(
                plan.report,
                observer,
                context.job,
                command=plan.command,
                hosts=[name for name, _, _ in facts],
                ablated=plan.settings.ablate if ablated else "",
                generation=plan.launch.generation,
                begun_ns=_begun_ns(plan.launch),
            )
            if has_file(plan.report):
                write_report_path(context.directory, plan.report)  # --picture has one in memory
        agent.start(op_rules(plan.settings))
        if context.rank == 0 and (members := plan.launch.members):
            agent.ask_to_leave(members.leaving)
        leader = lead(rendezvous, context)
        bound_process.bind_agent(context.place)  # with the leader's threads
        supervisor = _supervisor(
            context,
            plan,
            agent=agent,
            observer=observer,
            shim=shim,
            journal=journal,
            signals=signals,
            facts=node_facts(leader, observer, context),
            resumed=began.resumed,
            checkpoint_writer=checkpoint_writer,
            stack=stack,
        )
        code = code_with_checkpoints(supervisor.run(), context)
        shim.release(code)
        stop = agent.fatal_text()
        if len(context.nodes) > 1 and not supervisor.launcher_lost:
            if journal:  # if a host is lost now this agent does not come back from the wait for it
                journal.note_end(code, stop[0] if stop else None)
            finalize(rendezvous, leader, plan.settings)
        if journal:
            supervisor.read_last()
            code = journal.publish(code, stop[0] if stop else None)
            shim.release(code)
    if ablated:
        say(WARNING)  # again: the start's line may be far above
    if supervisor.launcher_lost:
        # MPI_Finalize would wait for a Hydra that is gone; the shim ends together with this agent.
        os._exit(code)
    return code


def _check_ablation(rendezvous: Rendezvous, settings: Settings, hosts: Nodes) -> bool:
    """Reports if the network is left out; returns whether this rank has reported it."""
    first = rendezvous.rank == 0
    rendezvous.agree(
        "the check of HOROVOD_FT_ABLATE",
        lambda: check_ablation(settings, hosts) if first else None,
    )
    if says := first and ablates_network(settings):
        say(WARNING)
    return says


def _begun_ns(launch: Launch) -> int | None:
    """Returns when the job was begun, on this host's clock of events; None: unknown."""
    if launch.generation:
        return None
    return launch.begun_monotonic_ns(time.time_ns(), time.monotonic_ns())


def _supervisor(
    context: JobContext,
    plan: Plan,
    *,
    agent: native.Agent,
    observer: native.Observer,
    shim: ShimClient,
    journal: Journal | None,
    signals: StopSignals,
    facts: Callable[[], Any],
    resumed: Resumed | None,
    checkpoint_writer: Sequence[str] | None,
    stack: contextlib.ExitStack,
) -> SupervisorLoop:
    settings, rank = context.settings, context.rank
    reader = StackReader(context.arenas, rank)
    stack.callback(reader.close)
    env = {
        **worker_environment(
            without_launcher(os.environ), rank, context.hosts, context.job, context.arenas
        ),
        "HOROVOD_FT_REPLAY_TIMEOUT_SECONDS": str(settings.replay_timeout_seconds),
        "HOROVOD_FT_LOG_STEPS": str(settings.log_steps),
        "HOROVOD_FT_SNAPSHOT_SECONDS": str(settings.snapshot_timeout_seconds),
        **bound_process.environment(context.place),
        "HOROVOD_FT_RESUMED": json.dumps(asdict(resumed)) if resumed else "",
        stacks.VARIABLE: reader.path,
    }
    return SupervisorLoop(
        context=context,
        training=Training(plan.command, env, plan.drills),
        agent=agent,
        observer=observer,
        shim=shim,
        care=ShimCare(
            shim,
            context,
            env=env,
            command=plan.command,
            spares=plan.spares if rank == 0 else 0,
            checkpoint_writer=checkpoint_writer,
            facts=facts,
            reap=_reap,
        ),
        commands=Commands(shim, plan.hooks, env, context.launch.generation),
        journal=journal,
        launchers=launchers_above(),
        signals=signals,
        stacks=reader,
        flight_records=bool(context.launch.launcher) and has_file(plan.report),
        trace_ops=plan.trace_ops,
    )


def _host(name: str, boot: str, guest: int | None) -> str:
    """Returns a name for the host of a rank; every guest has a separate name."""
    return f"{name} (boot {boot[:8]})" + ("" if guest is None else f", place {guest}")


def _meet(rendezvous: Rendezvous, settings: Settings, launch: Launch) -> list[Any]:
    """Returns host, boot and version of every agent."""
    mine = [*host_identity(), __version__]
    if not (settings.shared_dir and launch.job):
        return rendezvous.exchange("the agents' rendezvous", mine)
    file = PeerFile(settings.shared_dir, launch.job)
    generation, limit = launch.generation, settings.start_timeout_seconds

    def meet() -> list[Any]:
        return file.meet(generation, rendezvous.rank, rendezvous.size, mine, limit)

    return list(rendezvous.agree("the rendezvous in HOROVOD_FT_SHARED_DIR", meet)[rendezvous.rank])


if __name__ == "__main__":
    sys.exit(main())
