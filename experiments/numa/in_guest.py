"""Runs in a machine with several NUMA nodes: small jobs without MPI, each bound in another way.

    in_guest.py               # a line `ROW {…}` for every process of each job, and `SHOWN …`

Agents and workers are bound, and the job's files made, by production's own code. The process that
makes them all is bound to the first CPU, as the first agent may happen to be.
"""

import json
import mmap
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hvd_ft import native
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.job_setup import make_rank_arenas
from hvd_ft.agent.node_leader import op_rules
from hvd_ft.job.binding import Place
from hvd_ft.job.bound_process import Asked, bind_agent, bind_worker, environment
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings
from hvd_ft.job.worker_environment import worker_environment
from hvd_ft.system.process_placement import memory_of, policy_of
from hvd_ft.system.topology import read_topology
from hvd_ft.tools.check.numa import processes_table, topology_table
from hvd_ft.tools.check.numa_advice import advice
from hvd_ft.tools.check.placed import look

RANKS = 2
CASES = (
    Asked("none", "slot"),
    Asked("auto", "slot"),
    Asked("numa", "numa"),
    Asked("socket", "slot"),
    Asked("core", "numa"),
)
JOB = "numajob"
DIRECTORY = f"/dev/shm/hvdft-0/{JOB}"
LIMIT = 96 << 20
MIB = 1 << 20
OWN_MIB, SNAPSHOT_MIB, RESULT_MIB = 96, 8, 8


def context_of(rank: int, asked: Asked) -> JobContext:
    """Returns the place of a rank's agent in a job of one host."""
    settings = Settings(bind_to=asked.bind_to, map_by=asked.map_by)
    return JobContext(rank, settings, Nodes((0, RANKS)), JOB, DIRECTORY)


def run_job(asked: Asked, hosts: Sequence[subprocess.Popen[bytes]]) -> None:
    """Makes a job's files, starts its processes, and looks where everything is."""
    os.makedirs(DIRECTORY, 0o700)
    os.chmod(os.path.dirname(DIRECTORY), 0o700)
    contexts = [context_of(rank, asked) for rank in range(RANKS)]
    places = [context.place for context in contexts]
    try:
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(everywhere)})
        for context in contexts:
            make_rank_arenas(context, RANKS, LIMIT, 1 << 20)
        grow_results()
        os.sched_setaffinity(0, everywhere)
        for host in hosts:
            tell(ends_of(host)[0], " ".join(asked))
        for host in hosts:
            assert hear(ends_of(host)[1]) == "ready"
        show(asked, places)
        for host in hosts:
            tell(ends_of(host)[0], "end")
            assert hear(ends_of(host)[1]) == "ended"
    finally:
        shutil.rmtree(DIRECTORY, ignore_errors=True)


def ends_of(host: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Returns where it is told, and where it is heard."""
    assert host.stdin and host.stdout
    return host.stdin.fileno(), host.stdout.fileno()


def tell(end: int, text: str) -> None:
    os.write(end, text.encode())


def hear(end: int) -> str:
    """Waits for what the other end tells, which waits for an answer then; "" if it has ended."""
    return os.read(end, 100).decode()


def grow_results() -> None:
    """Gives memory to the log's heap, as it is given there (csrc/arena/memory.cc)."""
    with Path(DIRECTORY, "node.arena").open("r+b") as file:
        os.posix_fallocate(file.fileno(), results_at(), RESULT_MIB * MIB)


def results_at() -> int:
    """Returns an offset in the heap of node.arena."""
    return Path(DIRECTORY, "node.arena").stat().st_size - RESULT_MIB * MIB


def show(asked: Asked, places: Sequence[Place]) -> None:
    """Prints what `hvdft check --numa` finds, and the same as data."""
    topology = read_topology()
    processes = look(DIRECTORY)
    console = Console(width=150)
    print(f"SHOWN --bind-to {asked.bind_to} --map-by {asked.map_by}")
    console.print(processes_table(topology, processes))
    found = advice(topology, processes, policy=policy_of(memory_of(os.getpid())), environ={})
    for line in found:
        console.print(f"warning: {line}", highlight=False, soft_wrap=True)
    for process in processes:
        place = places[process.rank]
        row = {
            "bind_to": asked.bind_to,
            "map_by": asked.map_by,
            "rank": process.rank,
            "process": process.role,
            "cpus": sorted(process.cpus),
            "planned_cpus": place.cpus if process.role == "worker" else place.agent_cpus,
            "planned_memory": place.memory,
            "leader_cpus": sorted(c for thread in process.leader_threads for c in thread.cpus),
            "own": process.own,
            "area": process.area,
            "results": process.results,
            "warnings": found,
        }
        print(f"ROW {json.dumps(row)}", flush=True)


def host_agents(rank: int) -> None:
    """Forks the agents of a rank, one job after the other: Python takes long to start here."""
    while words := hear(0).split():
        agent = os.fork()
        if agent == 0:
            be_agent(rank, Asked(*words))
            os._exit(0)
        assert os.waitpid(agent, 0)[1] == 0
        tell(1, "ended")


def be_agent(rank: int, asked: Asked) -> None:
    """Starts its worker, and is bound together with a thread such as a leader's."""
    context = context_of(rank, asked)
    agent = native.Agent(DIRECTORY, JOB, rank)
    agent.start(op_rules(Settings()))
    (end, workers_end), (goes_on, begins) = os.pipe(), os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(end)
        be_worker(context, workers_end, goes_on)
        os._exit(0)
    os.close(workers_end)
    agent.started(0, worker)
    named, ended = threading.Event(), threading.Event()

    def lead() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("hvdft-mirror")
        named.set()
        ended.wait()

    leader = threading.Thread(target=lead)
    leader.start()
    named.wait()
    bind_agent(context.place)
    assert hear(end) == "ready"
    tell(1, "ready")
    assert hear(0) == "end"
    tell(begins, "end")
    assert os.waitpid(worker, 0)[1] == 0
    ended.set()
    leader.join()
    agent.close()


def be_worker(context: JobContext, to_agent: int, from_agent: int) -> None:
    """Uses memory of its own, its input area, a snapshot, and all results."""
    rank = context.rank
    os.environ |= worker_environment(os.environ, rank, context.hosts, JOB, DIRECTORY)
    os.environ |= {**environment(context.place), "HOROVOD_FT_INCARNATION": "0"}
    bind_worker(os.environ)
    worker = native.worker()
    assert worker
    own = bytearray(b"x" * (OWN_MIB * MIB))
    with Path(DIRECTORY, f"rank-{rank}.arena").open("r+b") as file:
        area = mmap.mmap(file.fileno(), MIB, offset=4096)
    area[:] = own[:MIB]
    worker.loop_begin(0)
    worker.snapshot_begin(0, 0, 0)
    worker.snapshot_room(0, SNAPSHOT_MIB * MIB)[:] = own[: SNAPSHOT_MIB * MIB]
    with Path(DIRECTORY, "node.arena").open("r+b") as file:
        results = mmap.mmap(file.fileno(), RESULT_MIB * MIB, offset=results_at())
    assert sum(results[:: mmap.PAGESIZE]) == 0
    tell(to_agent, "ready")
    assert hear(from_agent) == "end"


def main() -> None:
    """Runs a job for each case; or, with a rank, hosts the agents of that rank."""
    if sys.argv[1:]:
        host_agents(int(sys.argv[1]))
        return
    Console(width=150).print(topology_table(read_topology()))
    hosts = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank)],
            env={**os.environ, "PMI_RANK": str(rank)},  # tells whose agent it is
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for rank in range(RANKS)
    ]
    for asked in CASES:
        run_job(asked, hosts)
    for host in hosts:
        assert host.stdin
        host.stdin.close()
    assert [host.wait() for host in hosts] == [0] * RANKS


if __name__ == "__main__":
    main()
