"""The launcher's machine in a simulated world: each fault, two of them, and three at random."""

import functools
import os
import random
import subprocess
import zlib

import pytest
from conftest import ROOT
from job_explorer import KINDS, check, draw, finish
from job_world import World
from world_faults import Fault

NAMES = sorted(KINDS)
SLICES = 8  # of the pairs of a kind, for `make part`
SMALL_SLICES = 400  # for `make test`
TRIPLES = 25


@functools.cache
def commit() -> str:
    """Returns the commit, so that each one tries something else; "" outside of a checkout."""
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip()


def commit_number(name: str) -> int:
    return zlib.crc32(f"{commit()} {name}".encode())


@pytest.mark.parametrize("name", NAMES)
def test_a_job_ends_well_if_nothing_fails(name: str) -> None:
    found = check(KINDS[name], 0)
    assert found.runs == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_job_goes_on_after_each_fault(name: str) -> None:
    """A third of the faults, others for each commit."""
    assert check(KINDS[name], 1, (commit_number(name) % 3, 3)).runs > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_job_goes_on_after_some_pairs_of_faults(name: str) -> None:
    """Others for each commit."""
    part = (commit_number(name) % SMALL_SLICES, SMALL_SLICES)
    assert check(KINDS[name], 2, part).runs > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_job_goes_on_after_three_faults_at_random(name: str) -> None:
    seed = int(os.environ.get("SEED", commit_number(f"triples {name}")))
    print(f"SEED={seed}")
    drawn = random.Random(seed)
    for _ in range(TRIPLES):
        assert len(draw(KINDS[name], drawn)) == 3


@pytest.mark.long
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("name", NAMES)
def test_a_job_goes_on_after_each_pair_of_faults(name: str, part: int) -> None:
    assert check(KINDS[name], 2, (part, SLICES)).runs > 100


def test_a_world_can_be_repeated() -> None:
    worlds = [World(KINDS["in place"], traced=True) for _ in range(2)]
    for world in worlds:
        while world.events < 300:
            world.step()
    copy = World.thaw(worlds[0].freeze())
    for world in (*worlds, copy):
        while world.events < 600:
            world.step()
    assert worlds[0].trace == worlds[1].trace == copy.trace


def test_a_host_that_dies_before_its_first_answer_is_lost() -> None:
    world = World(KINDS["hosts"])
    while world.generation is None or not world.generation.complete:
        world.step()
    Fault("host_dies", "n1").strike(world)
    finish(world)
    ended = world.launcher.ended
    assert ended is not None
    assert (ended.code, ended.files_stay, ended.lost) == (1, True, ("n1",))
    assert world.launcher.started == [0]  # nothing was started where nobody is


def test_new_agents_wait_for_a_shim_that_stands_still() -> None:
    world = World(KINDS["led"])
    while world.generation is None or not world.generation.complete:
        world.step()
    Fault("host_dies", "n0").strike(world)
    while world.generation.number == 0:
        world.step()
    Fault("shim_freezes", "1", 1.5).strike(world)
    finish(world)
    ended = world.launcher.ended
    assert ended is not None
    assert ended.code == 0


def test_new_agents_kill_a_shim_that_stays_silent() -> None:
    world = World(KINDS["hosts"])
    while world.generation is None or not world.generation.complete:
        world.step()
    Fault("shim_freezes", "1", 10_000.0).strike(world)
    Fault("agent_dies", "0").strike(world)
    finish(world)
    ended = world.launcher.ended
    assert ended is not None
    assert (ended.code, world.launcher.started) == (0, [0, 1])


@pytest.mark.parametrize("name", ["led", "led without spares"])
def test_new_agents_wait_for_a_host_that_falls_silent_as_they_are_recorded(name: str) -> None:
    world = World(KINDS[name])
    while world.job.over is None:
        world.step()
    Fault("agent_dies", "0").strike(world)
    world.step()
    Fault("host_is_cut", "n0", 7.0).strike(world)
    finish(world)  # no agents are started on a silent host
    assert world.launchers[0].started == [0, 1]
    ended = world.launchers[0].ended
    assert ended is not None
    assert ended.code == 0


def test_a_change_of_hosts_is_asked_for_again_by_the_next_agents() -> None:
    world = World(KINDS["parts"])
    while world.job.step < 2:
        world.step()
    world.job.busy_until = world.now + 1.5
    Fault("host_found", "n3").strike(world)
    while not world.job.leaves:
        world.step()
    Fault("agent_dies", "0").strike(world)  # which alone knew that the job was to leave
    finish(world)
    assert world.job.number == 2
