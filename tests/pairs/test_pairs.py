"""Real jobs to which one fault happens, and another one while the job recovers from the first.

`make pairs` runs all of them; pairs.py has the faults, and the rule of what has to come of them.
"""

from collections import ChainMap
from collections.abc import Sequence
from pathlib import Path

import pytest
from arithmetic import expected, expected_own
from conftest import running_cluster
from pair_job import NODES, RANKS, PairJob, running
from pairs import FAULTS, Fault, Pair, Setting, await_checkpoint, begin, go_on, pairs

pytestmark = [pytest.mark.job, pytest.mark.long, pytest.mark.timeout(1200)]
# Rank 0 says that now and then; so many times, and a fault has come to nothing.
PROGRESS, MUCH = "steps are done", 6
ALL = {pair.name: pair for pair in pairs()}


def check(job: PairJob) -> None:
    """Checks what the ranks have ended with."""
    results = job.results()
    assert results, job.told()
    stretches = [tuple(each) for each in results[0]["stretches"]]
    ranks, steps = stretches[-1][1], sum(count for count, _ in stretches)
    assert [each["rank"] for each in results] == [*range(ranks)], job.told()
    right = expected(stretches)
    for each in results:
        assert (each["digest"], each["stretches"]) == (right, results[0]["stretches"]), job.told()
        if {ranks for _, ranks in stretches} == {RANKS}:
            assert each["own"] == expected_own(each["rank"], steps), job.told()


def strike(job: PairJob, fault: Fault) -> bool:
    """Has a fault happen, and waits until its recovery can be seen.

    Returns:
        Whether it was: it comes to nothing if the job ends, or what it hit was dying.
    """
    launch, since = job.now, len(job.now.lines)
    fault.strike(job)
    if job.now is not launch:
        since = 0
    while fault.seen:
        heard = len(job.now.lines)
        lines = job.now.lines[since:heard]
        if any(text in line for line in lines for text in fault.seen):
            return True
        if job.now.over or sum(PROGRESS in line for line in lines) >= MUCH:
            return False
        job.now.more_than(heard)
    return True


def train_again(job: PairJob) -> None:
    """Waits until the job has done some more steps."""
    assert job.now.awaits([PROGRESS], len(job.now.lines)), job.told()


def go_through(job: PairJob, faults: Sequence[Fault], *, later: bool) -> None:
    """Runs a job to which these faults happen, and sees that it comes to the right end.

    Args:
        job: it.
        faults: one after the other.
        later: whether it trains again between them.
    """
    ends = {fault.ends for fault in faults if fault.ends is not None}
    begin(job)
    job.launch()
    job.trains()
    if ends:
        await_checkpoint(job)
    for number, fault in enumerate(faults):
        seen = strike(job, fault)
        assert seen or number > 0, job.told()
        if later:
            train_again(job)
    for fault in faults:
        if fault.heal:
            fault.heal(job)
    if ends:
        assert job.ended() in ends, job.told()
        go_on(job)
    job.end_file.touch()
    assert job.ended() == 0, job.told()
    check(job)
    job.clear(
        resumable=any(fault.keeps for fault in faults),
        abandoned=any(fault.abandons for fault in faults),
    )


def run(folder: Path, setting: Setting, *faults: Fault, later: bool = False) -> None:
    with running_cluster("-n", str(len(NODES))) as cluster:
        flags = setting.flags(str(folder / "hosts"))
        limits = dict(ChainMap(*(dict(fault.limits) for fault in faults)))
        job = PairJob(cluster, folder, flags, setting.node, limits)
        with running(job):
            go_through(job, faults, later=later)


@pytest.mark.parametrize("setting", Setting, ids=lambda setting: setting.value.replace(" ", "-"))
def test_nothing_happens(tmp_path: Path, setting: Setting) -> None:
    """The undisturbed run has what the arithmetic says."""
    run(tmp_path, setting)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_one(tmp_path: Path, fault: Fault) -> None:
    run(tmp_path, fault.needs or Setting.SPARE_HOSTS, fault)


@pytest.mark.parametrize("pair", ALL.values(), ids=ALL)
def test_pair(tmp_path: Path, pair: Pair) -> None:
    run(tmp_path, pair.setting, pair.first, pair.second, later=pair.later)
