"""What the model says about clusters that cannot be measured here. Pure.

A step of a ring takes as long wherever it is in the ring, so what a ring of thousands of members
takes follows from the steps of a few: `large_ring_seconds`.
"""

import functools
import math
from dataclasses import replace

from experiments.locality.ring_model import (
    BLOCKING,
    SEGMENT_BYTES,
    Machine,
    Steps,
    ring_seconds,
)

# 100 Gbit/s. Of RDMA the host's CPUs see little; TCP copies every byte, on both sides.
RDMA = Machine(
    link=12.1e9, latency=3e-6, overhead=1e-6, handoff=2e-6, wire=2e-11, memory=1e-10, add=1e-10,
    cpus=64,
)  # fmt: skip
TCP = replace(RDMA, link=11.9e9, latency=15e-6, overhead=5e-6, handoff=10e-6, wire=2e-10)
_STEPS = 8  # simulated of each kind: enough for the pipeline to fill
_MOST_CHUNK = 4 * SEGMENT_BYTES  # simulated; larger chunks keep a pipeline full for longer


@functools.cache
def large_ring_seconds(
    machine: Machine,
    side: str,
    nodes: tuple[int, ...],
    members: int,
    size: float,
    *,
    rings: int = 1,
) -> float:
    """Returns how long a flat ring of many members takes.

    Args:
        machine: the cluster.
        side: as for `ring_seconds`.
        nodes: the node of each member of a small ring, whose pattern the large one repeats.
        members: of the large one.
        size: bytes.
        rings: side by side.
    """
    chunk = size / members
    most = rings * _MOST_CHUNK
    if side not in BLOCKING and chunk > most:
        part = large_ring_seconds(machine, side, nodes, members, most * members, rings=rings)
        return part * chunk / most

    def seconds(adds: int, copies: int) -> float:
        return ring_seconds(machine, side, nodes, Steps(adds, copies, chunk), rings)

    if members - 1 <= 2 * _STEPS:
        return seconds(members - 1, members - 1)
    begin = seconds(_STEPS, 0)
    add = (seconds(2 * _STEPS, 0) - begin) / _STEPS
    copy = (seconds(0, 2 * _STEPS) - seconds(0, _STEPS)) / _STEPS
    return begin + (members - 1 - _STEPS) * add + (members - 1) * copy


def halving_seconds(machine: Machine, members: int, size: float) -> float:
    """Returns how long recursive halving and doubling takes: as many bytes, few hops.

    It is a tree's time on a network in which no links are shared (full bisection).
    """
    hop = machine.latency + 2 * machine.overhead
    rounds = math.ceil(math.log2(members))
    passed = size * (1 - 1 / members)
    way = max(1 / machine.link, machine.wire)
    return 2 * rounds * hop + 2 * passed * way + passed * machine.add


def gather_seconds(machine: Machine, members: int, size: float) -> float:
    """Returns how long a gathered op takes (protocol/gather_plan.h)."""
    hop = machine.latency + 2 * machine.overhead
    way = max(1 / machine.link, machine.wire)
    rounds = math.ceil(math.log2(members))
    return rounds * hop + (members - 1) * size * (way + machine.add)


def ring_is_level_at(machine: Machine, members: int, within: float = 0.1) -> float:
    """Returns the bytes from which on a ring of nodes is at most so much slower than a tree."""
    least, most, nodes = 1e3, 1e13, (0, 1, 2, 3)

    def behind(size: float) -> bool:
        ring = large_ring_seconds(machine, "endpoints", nodes, members, size)
        return ring > (1 + within) * halving_seconds(machine, members, size)

    while most / least > 1.1:
        middle = math.sqrt(least * most)
        least, most = (middle, most) if behind(middle) else (least, middle)
    return most


def lost_to_deaths(between: float, each: float) -> float:
    """Returns the share of the time that is lost if a death costs so many seconds.

    Args:
        between: seconds between two deaths in the job.
        each: seconds for which the job stands still.
    """
    return each / (between + each)


def lost_to_restarts(between: float, restart: float, write: float) -> float:
    """Returns the share that is lost if a death restarts the job from its last checkpoint.

    The interval between checkpoints is the best one (Young: the square root of twice the product of
    the time to write one and the time between deaths).

    Args:
        between: seconds between two deaths in the job.
        restart: seconds to start the job.
        write: seconds for which the job stands still to write a checkpoint.
    """
    interval = math.sqrt(2 * write * between)
    return min(write / interval + (restart + interval / 2) / between, 1.0)
